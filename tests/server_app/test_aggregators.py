"""Aggregators by name: each is the strategy it says, with the settings that are its own."""

from typing import Any, get_args

import pytest
from flwr.serverapp import strategy as flower

from protocol.schedule import Ending, Leg
from server_app.config.aggregators import build_aggregator, cohort_size
from server_app.config.method_settings import Aggregator
from server_app.config.run_config import Settings
from strategies.aggregators.geometric_median import GeometricMedian
from strategies.aggregators.radon import RadonPoint
from strategies.routing.planner import ModelRef, Planner

ROUTE_SEED = bytes(range(32))


def parse(**changes: Any) -> Settings:
    values = {key.replace("_", "-"): value for key, value in changes.items()}
    if values.get("aggregator") == "qfedavg":
        values |= {"daisy-period": 0}
    return Settings.from_run_config(values, source="test")


def build(aggregator: str, **changes: Any) -> Any:
    return build_aggregator(parse(aggregator=aggregator, **changes), route_seed=ROUTE_SEED)


KINDS: dict[str, type[flower.Strategy]] = {
    "fedavg": flower.FedAvg,
    "fedavgm": flower.FedAvgM,
    "fedprox": flower.FedProx,
    "fedadam": flower.FedAdam,
    "fedyogi": flower.FedYogi,
    "fedadagrad": flower.FedAdagrad,
    "median": flower.FedMedian,
    "trimmed-mean": flower.FedTrimmedAvg,
    "krum": flower.Krum,
    "multi-krum": flower.MultiKrum,
    "bulyan": flower.Bulyan,
    "qfedavg": flower.QFedAvg,
    "radon": RadonPoint,
    "geometric-median": GeometricMedian,
}


def test_every_name_of_the_settings_is_here() -> None:
    assert set(KINDS) == set(get_args(Aggregator))


@pytest.mark.parametrize("name", KINDS)
def test_a_name_gives_its_own_strategy_and_leaves_drawing_to_feddc(name: str) -> None:
    built = build(name)

    assert type(built) is KINDS[name]
    assert built.fraction_train == 1.0


SETTINGS: list[tuple[str, dict[str, Any], str, float]] = [
    ("fedprox", {"proximal_mu": 0.3}, "proximal_mu", 0.3),
    ("fedprox", {"proximal_mu": 0}, "proximal_mu", 0.0),
    ("fedavgm", {"server_momentum": 0.7}, "server_momentum", 0.7),
    ("fedavgm", {"server_learning_rate": 0.4}, "server_learning_rate", 0.4),
    ("fedavgm", {}, "server_learning_rate", 1.0),
    ("fedadam", {"server_learning_rate": 0.4}, "eta", 0.4),
    ("fedadam", {}, "eta", 0.1),
    ("fedyogi", {"server_learning_rate": 0.4}, "eta", 0.4),
    ("fedyogi", {}, "eta", 0.1),
    ("fedadagrad", {"server_learning_rate": 0.4}, "eta", 0.4),
    ("fedadagrad", {}, "eta", 0.1),
    ("trimmed-mean", {"trim_fraction": 0.1}, "beta", 0.1),
    ("krum", {"krum_malicious": 2}, "num_malicious_nodes", 2),
    ("multi-krum", {"krum_malicious": 2}, "num_malicious_nodes", 2),
    ("bulyan", {"krum_malicious": 1}, "num_malicious_nodes", 1),
    ("qfedavg", {"qfedavg_q": 0.6}, "q", 0.6),
    ("radon", {"radon_iterations": 2}, "iterations", 2),
]


@pytest.mark.parametrize(("name", "changes", "attribute", "value"), SETTINGS)
def test_a_setting_reaches_its_strategy(
    name: str, changes: dict[str, Any], attribute: str, value: float
) -> None:
    assert getattr(build(name, **changes), attribute) == value


def test_qfedavg_undoes_the_hospitals_own_learning_rate() -> None:
    assert build("qfedavg", learning_rate=0.25).client_learning_rate == 0.25


def test_krum_selects_one_model() -> None:
    assert build("krum", krum_malicious=2).num_nodes_to_select == 1


@pytest.mark.parametrize(
    ("hospitals", "fraction", "malicious", "selected"),
    [(10, 1.0, 2, 8), (10, 0.5, 1, 4), (100, 0.1, 3, 7), (10, 1.0, 0, 10), (3, 1.0, 3, 1)],
)
def test_multi_krum_leaves_out_as_many_of_a_leg_as_may_be_malicious(
    hospitals: int, fraction: float, malicious: int, selected: int
) -> None:
    # Counted in the whole study, all of a small cohort would be selected, attackers too.
    built = build("multi-krum", hospitals=hospitals, fraction=fraction, krum_malicious=malicious)

    assert built.num_nodes_to_select == selected


@pytest.mark.parametrize("hospitals", [2, 3, 7, 10, 25])
@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.25, 0.5, 0.74, 1.0])
def test_a_leg_has_as_many_hospitals_as_the_planner_draws(hospitals: int, fraction: float) -> None:
    settings = parse(hospitals=hospitals, fraction=fraction)
    planner: Any = Planner(
        hospitals=hospitals,
        last_leg=9,
        start=("aggregate", ModelRef("")),  # type: ignore[arg-type]
        permutation="uniform",
        fraction=fraction,
        route_seed=ROUTE_SEED,
    )

    plan = planner.plan(Leg(1, 0, 1, Ending.HAND_OVER), range(hospitals))

    assert cohort_size(settings) == len(plan.drawn)
