"""Other strategies inside and around FedDC in plain mode, and what is refused."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import (
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    QFedAvg,
    Strategy,
)

from strategies import FedDC
from tests.strategies.plain.small_app import FIRST, WatchedGrid, make_app, record, round_of

NODES, ROUNDS, B = 6, 8, 4


def private(strategy: Strategy, noise: float = 0.0, **arguments: Any) -> Strategy:
    """Return the strategy with Flower's central privacy; no model here is as far as 1,000 off."""
    return DifferentialPrivacyServerSideFixedClipping(
        strategy,
        noise_multiplier=noise,
        clipping_norm=1000.0,
        num_sampled_clients=NODES,
        **arguments,
    )


def feddc(strategy: Strategy) -> FedDC:
    return FedDC(strategy, daisy_period=1, aggregation_period=B, seed=7)


def run(strategy: Strategy) -> tuple[WatchedGrid, dict[str, np.ndarray]]:
    grid = WatchedGrid(make_app(), NODES)
    found = strategy.start(grid, record(FIRST), num_rounds=ROUNDS).arrays
    return grid, {name: array.numpy() for name, array in found.items()}


def models_sent(grid: WatchedGrid, server_round: int) -> set[bytes]:
    messages = [m for m in grid.sent if m.metadata.message_type == "train"]
    return {
        m.content.array_records["arrays"]["w"].numpy().tobytes()
        for m in messages
        if round_of(m) == server_round
    }


@pytest.mark.parametrize("inner", [FedAvg, FedAdam])
@pytest.mark.parametrize("is_outside", [True, False], ids=["outside", "inside"])
def test_without_noise_privacy_changes_nothing(
    inner: type[Strategy], is_outside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _, alone = run(feddc(inner()))
    assert "ε" not in caplog.text
    grid, found = run(private(feddc(inner())) if is_outside else feddc(private(inner())))
    for name, array in alone.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-12, atol=1e-12)
    # Models are handed over between the aggregations of rounds 4 and 8.
    assert [len(models_sent(grid, t)) for t in range(1, ROUNDS + 1)] == [1, 6, 6, 6, 1, 6, 6, 6]
    assert "not the models" in caplog.text


def test_nodes_continue_from_the_aggregate_with_the_noise_of_a_strategy_around_feddc() -> None:
    released: dict[int, np.ndarray] = {}

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        released[server_round] = arrays["w"].numpy()
        return None

    grid = WatchedGrid(make_app(), NODES)
    outer = private(feddc(FedAvg()), noise=1e-3)
    outer.start(grid, record(FIRST), num_rounds=ROUNDS, evaluate_fn=evaluate)
    assert models_sent(grid, B + 1) == {released[B].tobytes()}
    _, without = run(feddc(FedAvg()))
    assert not np.allclose(released[ROUNDS], without["w"], atol=1e-3)


def accountant() -> RdpAccountant:
    relation, method = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    return RdpAccountant(PrivacyConfig(1e-5, NODES, relation, method))


def test_an_accountant_is_refused_because_its_epsilon_would_not_hold() -> None:
    with pytest.raises(ValueError, match="its ε would not cover the models that nodes hand over"):
        feddc(private(FedAvg(), noise=1.0, accountant=accountant()))
    with pytest.raises(ValueError, match="requires a strategy using"):  # Flower's own
        private(feddc(FedAvg()), noise=1.0, accountant=accountant())


@pytest.mark.parametrize("strategy", [FedXgbBagging, FedXgbCyclic])
def test_trees_are_refused(strategy: type[Strategy]) -> None:
    with pytest.raises(ValueError, match="sends trees, which can't be handed on"):
        feddc(strategy())


def test_qfedavg_is_refused_with_hand_overs_only() -> None:
    def arguments() -> dict[str, Any]:
        return {"client_learning_rate": 0.1, "q": 0.1}

    with pytest.raises(ValueError, match="QFedAvg weighs a hospital by its own loss"):
        run(feddc(QFedAvg(**arguments())))
    _, found = run(FedDC(QFedAvg(**arguments()), daisy_period=None, aggregation_period=1))
    assert np.isfinite(found["w"]).all()


def test_own_first_models_need_a_study() -> None:
    with pytest.raises(ValueError, match="init='own' needs a study"):
        FedDC(FedAvg(), init="own")
