"""Every preset of the paper's experiments trains: two rounds of FedDC on the real data."""

from dataclasses import replace

import pytest

from lab.engine import run
from lab.experiments import experiment_names, load_experiment
from lab.experiments.readiness import READY, state
from lab.sweep import Request, SweepPlan
from lab.sweep.plan import Cell

_FEW = 10  # hospitals, where the aggregator does not need more


def _cells() -> list[tuple[str, str, Cell]]:
    found = []
    for name in experiment_names():
        experiment = load_experiment(name)
        for preset in ("desk", "full"):
            if experiment.needs or getattr(experiment, preset) is None:
                continue
            plan = SweepPlan(Request(experiment, preset, ("feddc",)))  # type: ignore[arg-type]
            found += [(name, preset, cell) for cell in plan.cells]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "preset", "cell"),
    [pytest.param(*each, id=f"{each[0]} {each[1]} {each[2].variant.label}") for each in _cells()],
)
def test_two_rounds_of_every_preset_train(name: str, preset: str, cell: Cell) -> None:
    experiment = load_experiment(name)
    if not state(experiment).startswith((READY, "laptop", "desk", "full")):
        pytest.skip(f"{name}: {state(experiment)}")
    plan = SweepPlan(Request(experiment, preset))  # type: ignore[arg-type]
    trial = plan.final(cell, 0, plan.rates(cell)[0])
    values = trial.values | {"rounds": 2}
    if values.get("aggregator") != "radon":
        values["hospitals"] = min(_FEW, int(values["hospitals"]))
    outcome = run(
        replace(trial, values=values).settings,
        backend=trial.backend,
        evaluate_every=2,
        evaluate_clients=False,
        test_sample=100,
    )
    assert outcome.complete
    assert outcome.final is not None
    assert 0 < outcome.final.loss < float("inf")
