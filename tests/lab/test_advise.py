"""Advice: what the ablations found, and a reason for everything."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.advise import Case, advise
from operation.cli import main
from server_app.config.run_config import Settings

DOCS = Path(__file__).parents[2] / "docs"
CASES = st.builds(
    Case,
    hospitals=st.integers(2, 500),
    examples=st.integers(1, 1000),
    rounds=st.integers(1, 10_000),
    classes=st.integers(0, 5),
    private=st.booleans(),
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


def test_with_noise_one_averages_often_as_the_experiment_says() -> None:
    rows = {(row["variant"], row["method"]): row for row in ablation("privacy")["rows"]}

    def accuracy(variant: str, method: str) -> str:
        return f"{rows[variant, method]['aggregate']['mean']:.1f} %"

    advice = advise(Case(50, 28, private=True))
    assert (advice.settings["daisy-period"], advice.settings["aggregation-period"]) == (0, 1)
    assert "aggregation-period at 3 or less" in advice.warnings[1]
    for variant, method in (
        ("patient, shared noise", "fedavg-1"),
        ("patient, cancelled noise", "feddc"),
        ("patient, local noise", "feddc"),
        ("no noise", "fedavg-1"),
        ("no noise", "feddc"),
    ):
        assert accuracy(variant, method) in advice.warnings[0]
    noisy = [rows[key]["epsilon"] for key in rows if "S =" not in key[0] and key[0] != "no noise"]
    assert all(7.99 < epsilon <= 8 for epsilon in noisy)


def ablation(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "results" / f"{name}.json").read_text("utf-8"))
    return found


def means(name: str) -> dict[str, float]:
    """Return FedDC's accuracy in each variant of an ablation."""
    rows = ablation(name)["rows"]
    return {row["variant"]: row["aggregate"]["mean"] for row in rows if row["method"] == "feddc"}


def over_every_round(name: str, variant: str) -> dict[str, Any]:
    return over(name, variant, "fedavg-1")


def over(name: str, variant: str, other: str) -> dict[str, Any]:
    (gain,) = [
        gain
        for gain in ablation(name)["gains"]
        if (gain["variant"], gain["over"]) == (variant, other)
    ]
    return dict(gain)


def test_with_a_single_example_one_averages_as_the_ablation_says() -> None:
    found = over_every_round("examples", "n = 1")
    advice = advise(Case(50, 1))
    assert not advice.chain
    assert (found["verdict"], f"{-found['gain']['mean']:.1f}") == ("behind", "1.4")
    assert any("1.4 points behind averaging every round" in each for each in advice.warnings)
    assert not any("expect about the accuracy" in each for each in advice.warnings)
    assert advise(Case(50, 2)).chain
    assert over_every_round("examples", "n = 2")["verdict"] == "undecided"


def test_few_classes_do_not_shorten_chains_as_the_ablation_says() -> None:
    found = means("non-iid")
    assert found["1 class, b = 10"] > found["1 class, b = 3"]
    assert found["2 classes, b = 10"] > found["2 classes, b = 3"]
    few, mixed = advise(Case(50, 8, classes=1)), advise(Case(50, 8))
    assert few.settings == mixed.settings
    assert "convolutions" in few.warnings[-1]
    hard = over_every_round("convolutions", "n = 8, 2 classes each")
    assert (hard["verdict"], f"{-hard['gain']['mean']:.1f}") == ("behind", "0.8")
    assert "0.8 points behind averaging every round" in few.warnings[-1]
    assert not any("convolutions" in each for each in mixed.warnings)


def test_the_periods_reason_is_what_the_ablation_says() -> None:
    found = means("period").values()
    assert f"{max(found) - min(found):.1f}" == "0.3"
    assert "by 0.3 points at most" in advise(Case(50, 8)).reasons["aggregation-period"]
    seeds = {
        row["variant"]: row["aggregate"]["values"]
        for row in ablation("cifar10-periods")["rows"]
        if row["method"] == "feddc"
    }
    assert len(seeds["b = 3"]) == 2
    for shorter, longer in zip(seeds["b = 3"], seeds["b = 30"], strict=True):
        assert shorter > longer


def test_with_few_rounds_one_averages() -> None:
    advice = advise(Case(50, 8, rounds=30))
    assert not advice.chain
    assert f"{-over_every_round('rounds', 'T = 30')['gain']['mean']:.1f}" == "3.0"
    assert "3.0 points less than averaging every round" in advice.warnings[0]
    found = over("rounds", "T = 30", "fedavg-b")
    assert (found["verdict"], f"{found['gain']['mean']:.1f}") == ("ahead", "3.2")
    assert "3.2 points ahead of averaging every 10 rounds" in advice.warnings[0]


def test_with_many_examples_one_tries_to_average_rarely_as_the_ablation_says() -> None:
    found = over("examples", "n = 16", "fedavg-b")
    assert (found["verdict"], f"{found['gain']['mean']:.1f}") == ("undecided", "1.1")
    assert any("+1.1 points, undecided" in each for each in advise(Case(50, 16)).warnings)
    assert not any("+1.1 points" in each for each in advise(Case(50, 8)).warnings)


def test_what_was_not_studied_is_said() -> None:
    def told(case: Case) -> bool:
        return any("no ablation here has fewer than 20" in each for each in advise(case).warnings)

    assert told(Case(19, 8))
    assert not told(Case(20, 8))


def test_the_command_prints_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "feddc lab advise --hospitals 20 --examples 8"
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
