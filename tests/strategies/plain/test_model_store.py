"""Models that wait on disk are read when they are used, and not before or afterwards."""

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAvg

from lab.flower.in_process import InProcessGrid
from protocol.model_bytes import ModelState
from strategies.identifiers import NodeId
from strategies.plain.model_store import FileArray, ModelStore
from strategies.wrapped.adapter import Contribution, Wrapped


def model(value: float) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.full(1000, value)), "n": Array(np.array(3))})


def numbers_in_memory(record: ArrayRecord) -> int:
    return sum(1 for array in record.values() if {"data", "_chunks"} & set(vars(array)))


def test_what_does_not_fit_in_memory_is_read_from_its_file() -> None:
    store = ModelStore(in_memory=10_000)
    store.put("small", model(1.0))
    store.put("large", model(2.0))
    assert numbers_in_memory(store.get("small")) == 2
    assert numbers_in_memory(store.get("large")) == 0
    assert all(isinstance(array, FileArray) for array in store.get("large").values())
    np.testing.assert_array_equal(store.get("large")["w"].numpy(), np.full(1000, 2.0))
    assert int(store.get("large")["n"].numpy()) == 3


def test_a_model_that_was_sent_does_not_stay_in_memory() -> None:
    """Flower keeps the pieces of an array that it has sent, in the array."""
    store = ModelStore(in_memory=0)
    store.put("model", model(1.0))
    sent = store.get("model")
    assert sent["w"].slice_array()
    assert numbers_in_memory(sent) == 1
    assert numbers_in_memory(store.get("model")) == 0


def test_a_model_replaces_the_one_of_its_name_and_others_are_dropped() -> None:
    store = ModelStore(in_memory=10_000)
    for value in range(5):
        store.put("same", model(value))  # would not fit beside the one it replaces
    assert numbers_in_memory(store.get("same")) == 2
    np.testing.assert_array_equal(store.get("same")["w"].numpy(), np.full(1000, 4.0))
    store.keep_only([])
    store.put("next", model(1.0))
    assert numbers_in_memory(store.get("next")) == 2


class CountedModel:
    """A stored model that counts how often it is read."""

    reads = 0

    def load(self) -> ModelState:
        CountedModel.reads += 1
        return ModelState({"w": np.ones(3)}, {})


class Looking(FedAvg):
    """Notes how many models were read before it began to aggregate."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.read_before = CountedModel.reads
        return super().aggregate_train(server_round, replies)


def test_a_wrapped_strategy_reads_stored_models_itself_one_by_one() -> None:
    strategy = Looking()
    wrapped = Wrapped(strategy, ModelState({"w": np.zeros(3)}, {}), own_init=False)
    nodes = [NodeId(1), NodeId(2), NodeId(3)]
    grid = InProcessGrid.without_clients()
    wrapped.messages(nodes, ConfigRecord(), grid)
    aggregate, _ = wrapped.aggregate([Contribution(n, CountedModel(), weight=1.0) for n in nodes])
    assert strategy.read_before == 0
    np.testing.assert_array_equal(aggregate.parameters["w"], np.ones(3))
