"""Any aggregation where hospitals begin with models of their own."""

import logging
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

from protocol.messages import Carries
from strategies.wrapped.adapter import Wrapped
from tests.strategies.contributions import contribution
from tests.strategies.formulas import adaptive, momentum
from tests.strategies.recorded_aggregations import Step, aggregations, assert_follows, vector
from tests.strategies.unruly_grid import UnrulyGrid, tiny


@pytest.mark.parametrize(
    ("aggregator", "step"),
    [("fedadam", lambda: adaptive("adam")), ("fedavgm", lambda: momentum(1.0, 0.9))],
)
def test_with_own_inits_the_first_aggregate_is_the_mean_and_steps_begin_there(
    run_open: Any, aggregator: str, step: Callable[[], Step]
) -> None:
    first, *rest = aggregations(run_open(aggregator=aggregator, init="own"))
    np.testing.assert_allclose(vector(first.after), first.models.mean(axis=0), rtol=1e-12)
    assert len(rest) == 2
    assert_follows(rest, step())  # with t = 1, no momentum yet


def test_with_own_inits_the_models_differ_from_the_start(run_open: Any) -> None:
    run = run_open(init="own", rounds=1, learning_rate=1e-9)
    (a,) = aggregations(run)
    assert {r.carries for _, r in run.grid.legs()} == {Carries.NOTHING}
    distances = [np.linalg.norm(x - y) for x, y in combinations(a.models, 2)]
    assert min(distances) > 0.5


@pytest.fixture
def flower_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    # A record may reach the handler twice, by way of the root logger.
    found = {(r.created, r.message) for r in log.records if "first aggregate's norm" in r.message}
    return [message for _, message in sorted(found)]


@pytest.mark.parametrize(("init", "expected"), [("own", 1), ("shared", 0)])
def test_a_collapse_is_warned_of_with_own_inits_and_not_with_a_shared_one(
    run_open: Any, flower_log: pytest.LogCaptureFixture, init: str, expected: int
) -> None:
    run_open(init=init, rounds=4)
    assert len(warnings(flower_log)) == expected
    assert all("Use init = shared" in message for message in warnings(flower_log))


def test_a_collapse_is_warned_of_only_once(flower_log: pytest.LogCaptureFixture) -> None:
    opposed = [contribution(1, 0), contribution(-1, 1)]
    wrapped = Wrapped(FedAvg(), opposed[0].model, own_init=False)
    for _ in range(3):
        wrapped.configure([100, 101], ConfigRecord(), UnrulyGrid(tiny()))
        wrapped.aggregate(opposed)
    assert len(warnings(flower_log)) == 1
