"""Every preset of the paper's experiments trains: two rounds of FedDC, few hospitals, real data."""

from dataclasses import replace

import pytest

from lab.engine import run
from lab.experiments import experiment_names, load_experiment
from lab.experiments.readiness import missing
from lab.sweep import Request, SweepPlan
from lab.sweep.plan import Cell

_FEW = 4  # hospitals, where the aggregator does not need more
_SMALL = 32  # examples each


def _cells() -> list[tuple[str, str, Cell]]:
    found = []
    for name in experiment_names():
        experiment = load_experiment(name)
        for preset in ("desk", "full"):
            if experiment.needs or getattr(experiment, preset) is None:
                continue
            plan = SweepPlan(Request(experiment, preset, ("feddc",)))  # type: ignore[arg-type]
            found.append((name, preset, plan.cells[0]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "preset", "cell"),
    [pytest.param(*each, id=f"{each[0]} {each[1]}") for each in _cells()],
)
def test_two_rounds_of_every_preset_train(name: str, preset: str, cell: Cell) -> None:
    experiment = load_experiment(name)
    if lack := missing(experiment, preset):  # type: ignore[arg-type]
        pytest.skip(f"{name}: {lack}")
    plan = SweepPlan(Request(experiment, preset))  # type: ignore[arg-type]
    trial = plan.final(cell, 0, plan.rates(cell)[0])
    values = trial.values | {"rounds": 2}
    if values.get("aggregator") != "radon":
        values["hospitals"] = min(_FEW, int(values["hospitals"]))
    if "examples" in values:
        values["examples"] = min(_SMALL, int(values["examples"]))
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
