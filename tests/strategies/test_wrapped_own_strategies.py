"""Strategies of a user's own: those that aggregate, and those that are refused."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedTrimmedAvg,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from protocol.message_bytes import decode_signed_request
from protocol.messages import Hello, SetUp
from protocol.model_bytes import ModelState
from strategies.aggregators.radon import RadonPoint
from strategies.wrapped.adapter import Wrapped
from strategies.wrapped.cohort_view import CohortView
from tests.strategies.contributions import Returning, contribution
from tests.strategies.recorded_aggregations import Vector, vector
from tests.strategies.unruly_grid import UnrulyGrid, prepare, tiny
from tests.strategies.unruly_grid import run as run_feddc

# --- strategies of a user's own -------------------------------------------------------------------


class Halfway(FedAvg):
    """Goes half of the way from the last aggregate to the mean."""

    def __init__(self) -> None:
        super().__init__(weighted_by_key="importance", arrayrecord_key="weights")
        self.rounds: list[int] = []
        self.seen: list[list[tuple[int, float]]] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.last = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        self.rounds.append(server_round)
        self.seen.append(
            [
                (r.metadata.src_node_id, r.content.metric_records["metrics"]["importance"])  # type: ignore[misc]
                for r in replies
            ]
        )
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        halves = {n: Array((a.numpy() + self.last[n]) / 2) for n, a in arrays.items()}
        return ArrayRecord(halves), metrics


def assert_aggregates(outcome: Any, expected: Callable[[Vector, Vector], Vector]) -> None:
    before = vector(outcome.first)
    for leg, aggregate in outcome.diary.aggregates.items():
        models = np.stack([vector(model) for model in outcome.diary.models[leg].values()])
        before = expected(before, models)
        np.testing.assert_allclose(vector(aggregate), before, rtol=1e-9, atol=1e-12)


def test_a_users_subclass_of_fedavg_aggregates() -> None:
    strategy = Halfway()
    outcome = run_feddc(UnrulyGrid(tiny()), strategy)
    assert_aggregates(outcome, lambda x, models: (x + models.mean(axis=0)) / 2)
    assert strategy.rounds == [1, 2, 3]  # one server round for each aggregation
    assert strategy.seen == [[(node, 1.0) for node in range(1, 7)]] * 3  # in roster order


class Largest(Strategy):
    """Takes the model with the largest norm; has none of FedAvg's attributes."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        content = RecordDict({"model": arrays, "settings": config})
        # Any order, as long as all of the leg's hospitals are in it.
        return (Message(content, node, "train") for node in reversed(list(grid.get_node_ids())))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        records = [next(iter(reply.content.array_records.values())) for reply in replies]
        return max(records, key=lambda r: sum((a.numpy() ** 2).sum() for a in r.values())), None

    def configure_evaluate(self, *_: Any) -> Iterable[Message]:
        return []

    def aggregate_evaluate(self, *_: Any) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        pass


def test_a_strategy_that_is_no_fedavg_aggregates() -> None:
    outcome = run_feddc(UnrulyGrid(tiny()), Largest())
    assert_aggregates(outcome, lambda x, models: models[np.argmax(np.linalg.norm(models, axis=1))])


def test_flowers_privacy_wrapper_clips_against_the_last_aggregate() -> None:
    private = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(weighted_by_key="n"), noise_multiplier=0.0, clipping_norm=0.05, num_sampled_clients=6
    )
    outcome = run_feddc(UnrulyGrid(tiny()), private)

    def clipped(x: Vector, models: Vector) -> Vector:
        updates = models - x
        norms = np.linalg.norm(updates, axis=1, keepdims=True)
        assert (norms > 0.05).all()
        return x + (updates * 0.05 / norms).mean(axis=0)

    assert_aggregates(outcome, clipped)


def test_a_step_inside_flowers_privacy_wrapper_begins_at_the_mean_of_own_inits() -> None:
    private = DifferentialPrivacyClientSideFixedClipping(FedAvgM(server_momentum=0.9), 0.0, 1.0, 6)
    grid = UnrulyGrid(tiny(init="own"))
    # Which setting tells hospitals how to clip is theirs to know, and here they do not.
    with pytest.raises(Exception, match="did not agree"):
        run_feddc(grid, private)
    wrapped = Wrapped(private, ModelState({"w": np.zeros(2)}), own_init=True)
    contributions = [contribution(1, 0), contribution(2, 1)]
    wrapped.configure([100, 101], ConfigRecord(), grid)
    aggregate, _ = wrapped.aggregate(contributions)
    assert aggregate.parameters["w"].tolist() == [1.5, 1.5]


def test_the_strategy_is_shown_the_legs_cohort_and_can_send_nothing() -> None:
    shown: list[list[int]] = []

    class Curious(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            shown.append(sorted(grid.get_node_ids()))
            return super().configure_train(server_round, arrays, config, grid)

    grid = UnrulyGrid(tiny(rounds=4), away={2: {0, 1}})
    run_feddc(grid, Curious())
    everyone = [1, 2, 3, 4, 5, 6]  # by their place in the roster
    assert shown == [everyone, everyone, [3, 4, 5, 6], everyone, everyone]

    view = CohortView(grid, [100])
    for attempt in (
        lambda: view.push_messages([]),
        lambda: view.pull_messages([]),
        lambda: view.send_and_receive([]),
        lambda: view.set_run(grid.run),
    ):
        with pytest.raises(RuntimeError, match="sending is FedDC's part"):
            attempt()


# --- strategies that can't be wrapped, or do not deliver ------------------------------------------


PRIVATE = DifferentialPrivacyServerSideFixedClipping


@pytest.mark.parametrize(
    ("strategy", "changes", "message"),
    [
        (FedAvg(fraction_train=0.5), {}, r"fraction_train=0.5: subsampling is FedDC's"),
        (FedAvg(min_available_nodes=7), {}, r"min_available_nodes=7, .* 6 .* wait for ever"),
        (FedAdam(min_train_nodes=4), {"fraction": 0.5}, r"min_train_nodes=4, .* 3 .* wait"),
        (PRIVATE(FedAvg(min_available_nodes=7), 0, 1, 6), {}, r"min_available_nodes=7, .* 6 "),
        (Krum(num_malicious_nodes=2), {}, "Krum withstands 2 malicious .* 7 or more; a leg has 6"),
        (Krum(num_malicious_nodes=1), {"fraction": 0.5}, "Krum withstands 1 .* 5 or more; .* 3"),
        (MultiKrum(num_malicious_nodes=2), {}, "MultiKrum withstands 2 .* 7 or more"),
        (Bulyan(num_malicious_nodes=1), {}, "Bulyan withstands 1 .* 7 or more; a leg has 6"),
        (QFedAvg(client_learning_rate=0.1), {}, "QFedAvg .* use daisy_period=None and fraction=1"),
        (
            QFedAvg(client_learning_rate=0.1),
            {"daisy_period": None, "fraction": 0.5},
            "QFedAvg .* use daisy_period=None and fraction=1",
        ),
        (RadonPoint(), {}, "169 hospitals for a model of 167 trainable parameters"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Strategy) else None,
)
def test_a_strategy_that_could_never_aggregate_is_refused_before_the_agreement(
    strategy: Strategy, changes: dict[str, Any], message: str
) -> None:
    grid = UnrulyGrid(tiny())
    with pytest.raises(ValueError, match=message):
        prepare(grid, strategy, **changes)[1]()
    assert {type(decode_signed_request(data)) for _, data in grid.asked} == {Hello}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: None, "Returning made no aggregate of 6 models"),
        (lambda arrays: ArrayRecord({}), "other names or shapes"),
        (
            lambda arrays: ArrayRecord({n: Array(a.numpy()[None]) for n, a in arrays.items()}),
            "other names or shapes",
        ),
        (
            lambda arrays: ArrayRecord({n: Array(a.numpy() * np.nan) for n, a in arrays.items()}),
            "values that are not finite",
        ),
    ],
    ids=["nothing", "no arrays", "other shapes", "NaN"],
)
def test_an_aggregate_that_is_none_ends_the_run(
    change: Callable[[ArrayRecord], ArrayRecord | None], message: str
) -> None:
    with pytest.raises(AggregationError, match=message):
        run_feddc(UnrulyGrid(tiny()), Returning(change))


def test_a_strategy_that_samples_by_itself_is_refused() -> None:
    class Sampling(Largest):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            return list(super().configure_train(server_round, arrays, config, grid))[:3]

    grid = UnrulyGrid(tiny())
    with pytest.raises(AggregationError, match="Sampling chose 3 of the leg's 6 hospitals"):
        run_feddc(grid, Sampling())
    assert not any(isinstance(decode_signed_request(data), SetUp) for _, data in grid.asked)


def test_trimming_everything_is_the_strategys_own_error() -> None:
    strategy = FedTrimmedAvg(beta=0.2)
    strategy.beta = 0.6
    with pytest.raises(AggregationError, match=r"beta=0\.6 is too large"):
        run_feddc(UnrulyGrid(tiny()), strategy)
