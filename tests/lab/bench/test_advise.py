"""Advice: what the studies found, and a reason for everything."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.advise import Case, advise
from lab.cli import main
from server_app.settings import Settings

DOCS = Path(__file__).parents[3] / "docs"
CASES = st.builds(
    Case,
    hospitals=st.integers(2, 500),
    samples=st.integers(1, 1000),
    rounds=st.integers(1, 10_000),
    classes=st.integers(0, 5),
)


@given(CASES)
def test_advice_is_a_valid_configuration_with_reasons_and_enough_aggregations(case: Case) -> None:
    advice = advise(case)
    changes = {"hospitals": case.hospitals, "rounds": case.rounds} | advice.settings
    settings = Settings.from_run_config(changes, source="advice").algorithm
    assert set(advice.reasons) == set(advice.settings)
    assert settings.init == "shared"
    if advice.chain:
        assert settings.daisy_period == 1
        assert case.rounds // settings.aggregation_period >= 10
    else:
        assert (settings.daisy_period, settings.aggregation_period) == (0, 1)
        assert advice.warnings


def study(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "results" / f"{name}.json").read_text("utf-8"))
    return found


def means(name: str) -> dict[str, float]:
    """Return FedDC's accuracy in each variant of a study."""
    rows = study(name)["rows"]
    return {row["variant"]: row["aggregate"]["mean"] for row in rows if row["method"] == "feddc"}


def over_every_round(name: str, variant: str) -> dict[str, Any]:
    (gain,) = [
        gain
        for gain in study(name)["gains"]
        if (gain["variant"], gain["over"]) == (variant, "fedavg-1")
    ]
    return dict(gain)


def test_with_a_single_example_one_averages_as_the_study_says() -> None:
    found = over_every_round("samples", "n = 1")
    advice = advise(Case(50, 1))
    assert not advice.chain
    assert (found["verdict"], f"{-found['gain']['mean']:.1f}") == ("behind", "1.4")
    assert any("1.4 points behind averaging every round" in each for each in advice.warnings)
    assert not any("expect about the accuracy" in each for each in advice.warnings)
    assert advise(Case(50, 2)).chain
    assert over_every_round("samples", "n = 2")["verdict"] == "undecided"


def test_few_classes_do_not_shorten_chains_as_the_study_says() -> None:
    found = means("non-iid")
    assert found["1 class, b = 10"] > found["1 class, b = 3"]
    assert found["2 classes, b = 10"] > found["2 classes, b = 3"]
    few, mixed = advise(Case(50, 8, classes=1)), advise(Case(50, 8))
    assert few.settings == mixed.settings
    assert "convolutions" in few.warnings[-1]
    assert not any("convolutions" in each for each in mixed.warnings)


def test_the_periods_reason_is_what_the_study_says() -> None:
    found = means("period").values()
    assert f"{max(found) - min(found):.1f}" == "0.3"
    assert "by 0.3 points at most" in advise(Case(50, 8)).reasons["aggregation-period"]


def test_with_few_rounds_one_averages() -> None:
    advice = advise(Case(50, 8, rounds=30))
    assert not advice.chain
    assert f"{-over_every_round('rounds', 'T = 30')['gain']['mean']:.1f}" == "3.0"
    assert "3.0 points less than averaging every round" in advice.warnings[0]


def test_the_command_prints_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "feddc lab advise --hospitals 20 --samples 8"
    for extra in ((), ("--json",)):
        monkeypatch.setattr(sys, "argv", [*command.split(), *extra])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        out = capsys.readouterr().out
        if extra:
            assert json.loads(out)["settings"]["init"] == "shared"
        else:
            assert "aggregation-period" in out
