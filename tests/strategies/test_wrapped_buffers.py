"""Any aggregation: buffers, number types and configs are kept from the strategy."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg

from protocol.model_bytes import ModelState
from strategies.wrapped.adapter import Contribution, Wrapped
from tests.strategies.contributions import Returning, contribution
from tests.strategies.recorded_aggregations import aggregations
from tests.strategies.unruly_grid import UnrulyGrid, tiny
from tests.strategies.unruly_grid import run as run_feddc

IMAGES: dict[str, Any] = {
    "dataset": "digits",
    "model": "mri-cnn",
    "model_options": '{"filters": [2, 3]}',
    "hospitals": 4,
    "rounds": 6,
    "aggregation_period": 3,
    "batch_size": 4,
}


@pytest.mark.parametrize("aggregator", ["fedavg", "fedadam", "median"])
def test_buffers_are_averaged_and_never_the_strategys(run_open: Any, aggregator: str) -> None:
    for a in aggregations(run_open(aggregator=aggregator, **IMAGES)):
        assert {name.rpartition(".")[2] for name in a.after.buffers} == {
            "running_mean",
            "running_var",
            "num_batches_tracked",
        }
        for name, array in a.after.buffers.items():
            sent = [state.buffers[name] for state in a.states]
            np.testing.assert_allclose(array, np.mean(sent, axis=0), rtol=1e-12)
            if name.endswith("running_var"):
                assert (array > 0).all()
            if name.endswith("num_batches_tracked"):
                assert (array.dtype, array.shape) == (np.int64, ())
                assert array == 3 * a.count  # rounds trained so far


def test_the_strategy_sees_trainable_parameters_only() -> None:
    adam = FedAdam()
    outcome = run_feddc(UnrulyGrid(tiny(**IMAGES)), adam)
    assert adam.v_t is not None
    assert set(adam.v_t) == set(outcome.first.parameters)
    assert not set(adam.v_t) & set(outcome.first.buffers)


def test_counters_that_differ_become_the_nearest_whole_number_of_their_mean() -> None:
    contributions = [contribution(1, 1), contribution(2, 5), contribution(6, 8, weight=2.0)]
    wrapped = Wrapped(FedAvg(), contributions[0].model, own_init=False)
    grid = UnrulyGrid(tiny())
    wrapped.configure([c.node for c in contributions], ConfigRecord(), grid)
    aggregate, _ = wrapped.aggregate(contributions)
    assert aggregate.buffers["steps"] == 6  # (1 + 5 + 2·8) / 4 = 5.5
    assert aggregate.buffers["steps"].dtype == np.int64
    assert aggregate.buffers["var"] == pytest.approx(3.75)  # (1 + 2 + 2·6) / 4
    assert aggregate.parameters["w"].tolist() == [3.75, 3.75]
    assert aggregate.parameters["w"].dtype == np.float32


def test_a_scalar_parameter_stays_one() -> None:
    models = [ModelState({"scale": np.array(value)}) for value in (1.0, 2.0)]
    wrapped = Wrapped(FedAvg(), models[0], own_init=False)
    wrapped.configure([100, 101], ConfigRecord(), UnrulyGrid(tiny()))
    pairs = zip((100, 101), models, strict=True)
    aggregate, _ = wrapped.aggregate([Contribution(n, m, 1.0, 0.0, 1.0) for n, m in pairs])
    assert isinstance(aggregate.parameters["scale"], np.ndarray)
    assert (aggregate.parameters["scale"].shape, aggregate.parameters["scale"]) == ((), 1.5)


def test_an_aggregate_keeps_the_models_number_type() -> None:
    def widen(arrays: ArrayRecord) -> ArrayRecord:
        return ArrayRecord({n: Array(a.numpy().astype(np.float64)) for n, a in arrays.items()})

    contributions = [contribution(1, 0), contribution(2, 1)]
    wrapped = Wrapped(Returning(widen), contributions[0].model, own_init=False)
    wrapped.configure([100, 101], ConfigRecord(), UnrulyGrid(tiny()))
    aggregate, _ = wrapped.aggregate(contributions)
    assert aggregate.parameters["w"].dtype == np.float32


def test_a_strategy_may_write_into_its_config_without_others_noticing() -> None:
    class Halving(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            config["rate"] = 0.5 * float(config["rate"])  # type: ignore[arg-type]
            return super().configure_train(server_round, arrays, config, grid)

    given = ConfigRecord({"rate": 0.4})
    wrapped = Wrapped(Halving(), contribution(1, 0).model, own_init=False)
    for _ in range(3):  # each time from what was given
        sent = wrapped.configure([100, 101], given, UnrulyGrid(tiny()))
        assert dict(sent) == {"rate": 0.2}
    assert dict(given) == {"rate": 0.4}
