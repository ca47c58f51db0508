"""Counters in a model, set by its recipient: as they travel they would betray a parked chain.

A chain that waited for an absent hospital has missed rounds. Adam's step and BatchNorm's number of
batches would say so to every later recipient, and with it who had been absent. Neither is needed:
the recipient knows what they are in a chain that has missed nothing.
"""

import numpy as np

from client_app.state.experiment_store import ExperimentStore
from protocol.messages import Carries, TrainLeg
from protocol.model_bytes import Arrays, ModelState

_BATCHES = "num_batches_tracked"
_STEP = "step"
_AGGREGATE_ROUND = "aggregate-round"


def rounds_since_aggregate(request: TrainLeg, store: ExperimentStore) -> int:
    """Return the rounds since this hospital last began with an aggregate or a first model."""
    if request.carries is not Carries.ENVELOPE:
        store.put(_AGGREGATE_ROUND, request.first_round.to_bytes(8, "big"))
        return 0
    stored = store.get(_AGGREGATE_ROUND)
    return max(0, request.first_round - (int.from_bytes(stored, "big") if stored else 0))


def with_counters(model: ModelState, *, batches: int, steps: int) -> ModelState:
    """Return a model that has seen so many batches, and whose optimiser has made so many steps."""
    buffers: Arrays = {
        name: np.full_like(array, batches) if name.rpartition(".")[2] == _BATCHES else array
        for name, array in model.buffers.items()
    }
    optimizer: Arrays = {
        name: np.full_like(array, steps) if name == _STEP else array
        for name, array in model.optimizer.items()
    }
    return ModelState(model.parameters, buffers, optimizer)
