"""FedDC around an untouched ClientApp equals a direct reading of Algorithm 1."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian, FedProx, Krum, Result

from protocol.randomness import derive_seed
from strategies import FedDC, GeometricMedian, RadonPoint
from tests.strategies.plain.algorithm_one import Model, daisy_chaining, mean
from tests.strategies.plain.small_app import (
    FIRST,
    WatchedGrid,
    examples_of,
    local_update,
    make_app,
    record,
    round_of,
)

SEED, NODES = 7, 6
ROUTES = derive_seed(SEED, "route")


def start(strategy: FedDC, grid: WatchedGrid, rounds: int = 12, **arguments: Any) -> Result:
    return strategy.start(grid, record(FIRST), num_rounds=rounds, **arguments)


def expected(grid: WatchedGrid, rounds: int = 12, **changes: Any) -> Model:
    nodes = [100 + position for position in range(NODES)]
    arguments: dict[str, Any] = {
        "d": 1,
        "b": 4,
        "weights": {node: examples_of(node) for node in range(100, 120)},
        "nodes_after": {0: nodes},
    }
    return daisy_chaining(
        local_update, FIRST, rounds=rounds, route_seed=ROUTES, **arguments | changes
    )


def assert_equal(arrays: ArrayRecord, model: Model) -> None:
    assert list(arrays) == list(FIRST), "the arrays keep their order"
    for name, array in model.items():
        found = arrays[name].numpy()
        assert found.dtype == FIRST[name].dtype
        np.testing.assert_allclose(found, np.asarray(array), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("d", "b", "rounds"),
    [(1, 4, 12), (1, 5, 12), (2, 6, 12), (3, 4, 11), (None, 3, 9), (1, None, 7), (4, 4, 8)],
)
def test_it_is_algorithm_one(d: int | None, b: int | None, rounds: int) -> None:
    grid = WatchedGrid(make_app(), NODES)
    strategy = FedDC(FedAvg(), daisy_period=d, aggregation_period=b, seed=SEED)
    assert_equal(start(strategy, grid, rounds).arrays, expected(grid, rounds, d=d, b=b))
    # One call of the user's train for each node and round, also where models stay.
    trained = [(round_of(m), m.metadata.dst_node_id) for m in grid.sent if is_train(m)]
    assert sorted(trained) == [(t + 1, 100 + p) for t in range(rounds) for p in range(NODES)]


def is_train(message: Any) -> bool:
    return bool(message.metadata.message_type == "train")


def test_weights_are_equal_if_asked_for() -> None:
    grid = WatchedGrid(make_app(), NODES)
    strategy = FedDC(FedAvg(), aggregation_period=4, weighting="equal", seed=SEED)
    ones = dict.fromkeys(range(100, 120), 1.0)
    assert_equal(start(strategy, grid).arrays, expected(grid, weights=ones))


def test_a_chain_weighs_as_many_examples_as_it_has_seen() -> None:
    """With b = 2 a model visits two nodes: the sender and the recipient of one permutation."""
    grid = WatchedGrid(make_app(), NODES)
    strategy = FedDC(FedAvg(), aggregation_period=2, weighting="chain-examples", seed=SEED)
    found = start(strategy, grid, rounds=2).arrays
    from protocol.randomness import stream

    order = stream(ROUTES, "permutation", 1).permutation(NODES)
    sender_of = {100 + int(to): 100 + node for node, to in enumerate(order)}
    weights = {
        node: sum(examples_of(n) for n in {node, sender_of[node]})
        for node in range(100, 100 + NODES)
    }
    assert_equal(found, expected(grid, rounds=2, b=2, weights=weights))


def median(models: list[Model], weights: list[float], current: Model) -> Model:
    values = {name: np.median([m[name] for m in models], axis=0) for name in ("w", "b")}
    return values | {"steps": mean(models, weights, current)["steps"]}


@pytest.mark.parametrize(
    ("inner", "combine"),
    [(FedAvg, None), (FedProx, None), (FedMedian, median)],
)
def test_the_wrapped_strategy_aggregates(inner: Any, combine: Any) -> None:
    grid = WatchedGrid(make_app(), NODES)
    inside = inner(proximal_mu=0.1) if inner is FedProx else inner()
    strategy = FedDC(inside, aggregation_period=4, seed=SEED)
    assert_equal(start(strategy, grid).arrays, expected(grid, aggregate=combine))


@pytest.mark.parametrize(
    "inner",
    [
        FedAdam(),
        FedAvgM(server_momentum=0.9),
        Krum(num_malicious_nodes=1),
        GeometricMedian(),
        RadonPoint(iterations=1, seed=b"radon"),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_any_strategy_runs_to_its_end_and_integers_stay_integers(inner: Any) -> None:
    grid = WatchedGrid(make_app(), 8)
    result = start(FedDC(inner, aggregation_period=3, seed=SEED), grid, rounds=9)
    assert result.arrays["steps"].numpy().dtype == np.int64
    assert int(result.arrays["steps"].numpy()) == 9
    assert np.isfinite(result.arrays["w"].numpy()).all()


def test_hand_overs_move_distinct_models_and_aggregations_make_them_one() -> None:
    grid = WatchedGrid(make_app(), NODES)
    start(FedDC(FedAvg(), aggregation_period=4, seed=SEED), grid, rounds=8)

    def models(server_round: int) -> set[bytes]:
        sent = [m for m in grid.sent if is_train(m) and round_of(m) == server_round]
        return {m.content.array_records["arrays"]["w"].numpy().tobytes() for m in sent}

    assert [len(models(t)) for t in range(1, 9)] == [1, 6, 6, 6, 1, 6, 6, 6]


# --- evaluation -----------------------------------------------------------------------------------


def test_aggregates_are_evaluated_and_nothing_else() -> None:
    seen: list[int] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(server_round)
        return MetricRecord({"accuracy": 0.5})

    grid = WatchedGrid(make_app(), NODES)
    strategy = FedDC(FedAvg(), aggregation_period=4, seed=SEED)
    result = start(strategy, grid, rounds=10, evaluate_fn=evaluate)
    assert seen == list(result.evaluate_metrics_serverapp) == [0, 4, 8, 10]
    assert list(result.evaluate_metrics_clientapp) == [4, 8, 10]
    assert list(result.train_metrics_clientapp) == list(range(1, 11))


def test_a_client_app_without_evaluate_fails_nothing() -> None:
    grid = WatchedGrid(make_app(evaluates=False), NODES)
    result = start(FedDC(FedAvg(), aggregation_period=4, seed=SEED), grid)
    assert_equal(result.arrays, expected(grid))
    assert result.evaluate_metrics_clientapp == {}


def test_each_message_has_the_round_and_the_wrapped_strategys_config() -> None:
    grid = WatchedGrid(make_app(), NODES)
    start(FedDC(FedProx(proximal_mu=0.25), aggregation_period=4, seed=SEED), grid, rounds=5)
    for message in filter(is_train, grid.sent):
        (config,) = message.content.config_records.values()
        assert config["proximal-mu"] == 0.25
    assert [round_of(m) for m in filter(is_train, grid.sent)] == sorted([1, 2, 3, 4, 5] * NODES)


# --- drop-outs and newcomers ----------------------------------------------------------------------


def test_an_untrained_model_goes_on_to_the_next_node(caplog: pytest.LogCaptureFixture) -> None:
    def fails(t: int, node: int) -> bool:
        return (t, node) in {(1, 102), (2, 105), (6, 100)}

    grid = WatchedGrid(make_app(), NODES)
    grid.silent = lambda server_round, node: fails(server_round - 1, node)
    strategy = FedDC(FedAvg(), aggregation_period=4, seed=SEED)
    assert_equal(start(strategy, grid, timeout=0.05).arrays, expected(grid, fails=fails))
    assert "round 2: node 102 did not train: no reply in time" in caplog.text


def test_a_model_missing_at_an_aggregation_is_counted_as_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(t: int, node: int) -> bool:
        return t == 3 and node == 103

    grid = WatchedGrid(make_app(), NODES)
    grid.silent = lambda server_round, node: fails(server_round - 1, node)
    strategy = FedDC(FedAvg(), aggregation_period=4, seed=SEED)
    assert_equal(start(strategy, grid, timeout=0.05).arrays, expected(grid, fails=fails))
    assert "round 4: 1 chain(s) were lost" in caplog.text


def test_newcomers_start_from_an_aggregate_and_leavers_are_gone() -> None:
    grid = WatchedGrid(make_app(), 8)
    grid.connected = [100, 101, 102, 103, 104, 105]

    class Changing(WatchedGrid):
        def pull_messages(self, message_ids: Any) -> Any:
            replies = list(super().pull_messages(message_ids))
            if replies and is_train(self.sent[-1]) and round_of(self.sent[-1]) == 4:
                self.connected = [100, 101, 103, 104, 105, 106, 107]
            return replies

    changing = Changing(make_app(), 8)
    changing.connected = [100, 101, 102, 103, 104, 105]
    strategy = FedDC(FedAvg(), aggregation_period=4, seed=SEED)
    after = {0: list(changing.connected), 3: [100, 101, 103, 104, 105, 106, 107]}
    assert_equal(start(strategy, changing).arrays, expected(grid, nodes_after=after))


def test_the_models_of_a_node_that_disconnects_are_trained_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = WatchedGrid(make_app(), NODES)
    strategy = FedDC(FedAvg(), aggregation_period=6, seed=SEED)
    pushed = grid.push_messages

    def leaves(messages: Any) -> Any:
        sent = list(messages)
        if sent and is_train(sent[0]) and round_of(sent[0]) == 2:
            grid.connected = [100, 101, 102, 103, 104]
        return pushed(sent)

    grid.push_messages = leaves  # type: ignore[method-assign]
    result = start(strategy, grid, rounds=12)
    assert "node 105 is not connected; other nodes train its 1 model(s)" in caplog.text
    assert "1 chain(s) were lost" in caplog.text  # six models, five nodes, at round 6
    assert int(result.arrays["steps"].numpy()) <= 12
    assert {m.metadata.dst_node_id for m in grid.sent if is_train(m) and round_of(m) == 3} == {
        100, 101, 102, 103, 104
    }  # fmt: skip


def test_a_model_that_is_not_finite_or_of_another_shape_is_not_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = WatchedGrid(make_app(), NODES)
    pull = grid.pull_messages

    def spoil(message_ids: Any) -> Any:
        for reply in pull(message_ids):
            node, arrays = reply.metadata.src_node_id, reply.content.array_records.get("arrays")
            if arrays is not None and node == 101:
                arrays["w"] = record({"w": np.array([np.nan, 0, 0, 0])})["w"]
            if arrays is not None and node == 102:
                arrays["w"] = record({"w": np.zeros(3)})["w"]
            yield reply

    grid.pull_messages = spoil  # type: ignore[method-assign]
    result = start(FedDC(FedAvg(), aggregation_period=3, seed=SEED), grid, rounds=6)
    assert np.isfinite(result.arrays["w"].numpy()).all()
    assert "node 101 did not train: its array w is not finite" in caplog.text
    assert "node 102 did not train: its array w has another shape" in caplog.text


def test_it_ends_with_an_error_when_no_node_trains() -> None:
    grid = WatchedGrid(make_app(), NODES)
    grid.silent = lambda server_round, node: server_round == 3
    with pytest.raises(Exception, match="round 3: no node trained"):
        start(FedDC(FedAvg(), seed=SEED), grid, timeout=0.05)


# --- what is refused ------------------------------------------------------------------------------


def test_routes_follow_from_the_seed() -> None:
    def routes(seed: int | None) -> bytes:
        grid = WatchedGrid(make_app(), NODES)
        strategy = FedDC(FedAvg(), aggregation_period=6, seed=seed)
        return start(strategy, grid).arrays["w"].numpy().tobytes()

    assert routes(1) == routes(1) != routes(2)
    assert routes(None) != routes(None)
