"""Advice: what the studies found, and a reason for everything."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.advise import Case, advise
from lab.cli import main
from server_app.settings import Settings

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


def test_chains_are_short_where_hospitals_are_tiny_or_have_few_classes() -> None:
    mixed = advise(Case(50, 8)).settings["aggregation-period"]
    assert mixed > advise(Case(50, 2)).settings["aggregation-period"]
    assert mixed > advise(Case(50, 8, classes=1)).settings["aggregation-period"]


def test_with_few_rounds_one_averages() -> None:
    assert not advise(Case(50, 8, rounds=30)).chain


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
