"""The experiment `privacy`: its noise is what ε = 8 takes, and its results reach the aims."""

import json
from pathlib import Path

import pytest

from lab.engine.private.budget import run_epsilon
from lab.experiments import load_experiment
from lab.sweep.plan import Request, SweepPlan

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "privacy.json"
AIMS = {
    ("no noise", "feddc"): 95,
    ("no noise", "fedavg-1"): 95,
    ("patient, shared noise", "fedavg-1"): 92,
    ("patient, cancelled noise", "feddc"): 89,
    ("patient, local noise", "feddc"): 80,
    ("hospital, shared noise", "fedavg-1"): 65,
}


@pytest.mark.parametrize("variant", sorted({variant for variant, _ in AIMS} - {"no noise"}))
def test_multipliers_are_the_smallest_for_their_epsilon(variant: str) -> None:
    plan = SweepPlan(Request(load_experiment("privacy"), "laptop"))
    (cell,) = [cell for cell in plan.cells if cell.variant.label == variant]
    spent = run_epsilon(plan.final(cell, 0, plan.rates(cell)[0]).settings)
    assert spent is not None
    assert 7.99 < spent <= 8


def test_epsilon_is_that_of_the_setting_target_delta() -> None:
    plan = SweepPlan(Request(load_experiment("privacy"), "laptop"))
    (cell,) = [cell for cell in plan.cells if cell.variant.label == "patient, local noise"]
    settings = plan.final(cell, 0, plan.rates(cell)[0]).settings
    usual, stricter = (run_epsilon(settings.replace(target_delta=delta)) for delta in (1e-5, 1e-7))
    assert usual is not None
    assert stricter is not None
    assert run_epsilon(settings) == usual < stricter


def test_the_published_results_reach_the_aims_and_say_what_they_cost() -> None:
    rows = {(row["variant"], row["method"]): row for row in json.loads(RESULTS.read_text())["rows"]}
    for key, aim in AIMS.items():
        assert rows[key]["aggregate"]["mean"] >= aim
    private = [row for (variant, _), row in rows.items() if variant != "no noise"]
    assert len(private) == 10
    assert all(row["epsilon"] == "unbounded" or row["epsilon"] > 0 for row in private)
