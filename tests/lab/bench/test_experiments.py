"""The experiments' files: complete, consistent, and with the paper's numbers."""

import pytest

from lab.experiments import (
    ExperimentError,
    experiment_names,
    load_experiment,
    methods_of,
    study_names,
)
from lab.experiments.methods import STANDARD
from lab.sweep import Plan, Request
from tests.lab.bench.conftest import tiny

ALL = (*experiment_names(), *study_names())
SIZES = [
    (name, size)
    for name in ALL
    for size in ("laptop", "full")
    if not load_experiment(name).needs
    and (size == "laptop" or load_experiment(name).full is not None)
]


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_every_trial_of_every_experiment_has_settings_that_are_accepted(
    name: str, size: str
) -> None:
    plan = Plan(Request(load_experiment(name), size))  # type: ignore[arg-type]
    for cell in plan.cells:
        for rate in plan.rates:
            assert plan.candidate(cell, 0, rate).settings.local.held_out > 0 or len(plan.rates) == 1
            assert plan.final(cell, 0, rate).settings.training.learning_rate == rate


@pytest.mark.parametrize("name", experiment_names())
def test_an_experiment_of_the_paper_says_where_it_is_and_has_both_sizes(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment.source
    assert experiment.claim
    assert experiment.needs or (experiment.full and experiment.laptop)


def test_methods_are_named_by_their_periods() -> None:
    experiment = tiny(methods=list(STANDARD))
    base = {"daisy-period": 2, "aggregation-period": 20}
    labels = [method.label for method in methods_of(experiment, "laptop", base)]
    assert labels == [
        "FedDC(2, 20)",
        "daisy-chaining alone",
        "FedAvg(1)",
        "FedAvg(20)",
        "FedProx(20)",
        "FedAdagrad(20)",
        "FedYogi(20)",
        "FedAdam(20)",
        "all data together",
    ]


def test_an_unknown_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(ExperimentError, match="did you mean 'synthetic'"):
        load_experiment("syntetic")


def test_an_unknown_method_is_answered_with_those_there_are() -> None:
    with pytest.raises(ExperimentError, match="'fedx': choose from feddc, fedavg-1"):
        Plan(Request(tiny(), "laptop", ("fedx",)))


def test_a_key_that_is_no_setting_is_named_with_its_place() -> None:
    with pytest.raises(ExperimentError, match=r"test: laptop.rates: "):
        tiny(laptop={"rates": [1.0]})
