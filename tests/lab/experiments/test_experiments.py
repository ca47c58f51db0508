"""The experiments' files: complete, consistent, and with the paper's numbers."""

import pytest

from lab.experiments import (
    ExperimentError,
    ablation_names,
    experiment_names,
    load_experiment,
    methods_of,
)
from lab.standard_methods import STANDARD
from lab.sweep import Request, SweepPlan
from tests.lab.conftest import tiny

ALL = (*experiment_names(), *ablation_names())
SIZES = [
    (name, size)
    for name in ALL
    for size in ("laptop", "desk", "full")
    if not load_experiment(name).needs and getattr(load_experiment(name), size) is not None
]


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_every_trial_of_every_experiment_has_settings_that_are_accepted(
    name: str, size: str
) -> None:
    plan = SweepPlan(Request(load_experiment(name), size))  # type: ignore[arg-type]
    for cell in plan.cells:
        for rate in plan.rates(cell):
            candidate = plan.candidate(cell, 0, rate)
            assert candidate.settings.local.held_out > 0 or len(plan.rates(cell)) == 1
            assert plan.final(cell, 0, rate).settings.training.learning_rate == rate


@pytest.mark.parametrize("name", experiment_names())
def test_an_experiment_of_the_paper_says_where_it_is_and_has_both_sizes(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment.source
    assert experiment.claim
    only_full = name == "cifar10-resnet18"  # a step takes a second
    assert experiment.needs or (experiment.full and (experiment.laptop or only_full))


@pytest.mark.parametrize(
    "name",
    ["cifar10", "cifar10-non-iid", "mri", "pneumonia", "mnist", "synthetic", "susy-stand-in"],
)
def test_the_papers_regime_has_the_papers_examples_and_mini_batch_sgd(name: str) -> None:
    experiment = load_experiment(name)
    plan = SweepPlan(Request(experiment, "desk"))
    full = SweepPlan(Request(experiment, "full"))
    for cell in plan.cells:
        examples = plan.base(cell.variant).get("examples")
        assert examples in {full.base(other.variant).get("examples") for other in full.cells}
    methods = {cell.method.name: cell.method for cell in plan.cells}
    assert {"feddc", "fedavg-1", "fedavg-b", "daisy-chaining", "central", "sgd"} <= set(methods)
    rounds = plan.base(plan.cells[0].variant)["rounds"]
    sgd = methods["sgd"].central
    assert sgd is not None
    assert sgd.steps == rounds


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
        SweepPlan(Request(tiny(), "laptop", ("fedx",)))


def test_a_key_that_is_no_setting_is_named_with_its_place() -> None:
    with pytest.raises(ExperimentError, match=r"test: laptop.rates: "):
        tiny(laptop={"rates": [1.0]})


# Table 1 of the paper, typed off once more: CIFAR10, MRI, pneumonia.
TABLE_1 = """
feddc           62.9 0.02  78.4 0.61  83.2 0.84
daisy-chaining  58.4 0.85  57.7 1.57  79.8 0.99
fedavg-1        55.8 0.78  74.1 1.68  80.1 1.53
fedavg-b        48.7 0.87  75.6 1.18  79.4 1.11
fedprox         51.1 0.80  76.5 0.50  80.0 0.36
fedadagrad      21.8 0.01  45.7 1.25  62.5 0.01
fedyogi         31.4 4.37  71.3 1.62  77.6 0.64
fedadam         34.0 0.23  73.8 1.98  73.5 0.36
central         65.1 1.44  82.1 1.00  84.1 3.31
"""


@pytest.mark.parametrize(("name", "column"), [("cifar10", 0), ("mri", 1), ("pneumonia", 2)])
def test_the_papers_main_table_is_in_the_files(name: str, column: int) -> None:
    experiment = load_experiment(name)
    papers = experiment.paper or experiment.variants[1].paper
    printed = {}
    for line in TABLE_1.strip().splitlines():
        method, *numbers = line.split()
        printed[method] = tuple(map(float, numbers[2 * column : 2 * column + 2]))
    assert {m: (f.accuracy, f.deviation) for m, f in papers.items()} == printed


def test_variants_with_figures_of_their_own_do_not_borrow_the_experiments() -> None:
    mri = load_experiment("mri")
    assert [bool(variant.paper) for variant in mri.variants] == [False, True]
    assert "random split" in mri.variants[1].label
