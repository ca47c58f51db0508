"""The wrapped strategy, seen from FedDC: it configures every leg and aggregates at some of them.

It is shown exactly the leg's cohort and only trainable parameters; everything else in a model
(running statistics, counters) is averaged here.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from operation.flower.logger import log
from protocol.model_bytes import Arrays, ModelState
from strategies.aggregators.flatten import FloatArray, PointAggregator
from strategies.identifiers import NodeId

from . import saved_state
from .array_records import record_of
from .cohort_view import CohortView
from .requirements import layers
from .stored_arrays import LoadableModel, MemoryArray, ModelReader, StoredArray

_ROUND_KEY = "server-round"  # FedAvg adds it to every config; our requests carry the leg


@dataclass(frozen=True)
class Contribution:
    """One node's model for an aggregation, with its weight and metrics.

    `records` is a ClientApp's own reply without its arrays; it then takes the place of loss and
    accuracy.
    """

    node: NodeId
    model: ModelState | LoadableModel  # many models are read one at a time
    weight: float
    loss: float = math.nan
    accuracy: float = math.nan
    records: RecordDict | None = None
    norm: float | None = None  # the models' mean norm, where `model` is a mean itself

    def load(self) -> ModelState:
        return self.model if isinstance(self.model, ModelState) else self.model.load()


class Wrapped:
    """Calls a Flower strategy as Flower would, one server round per aggregation.

    `model` is the current aggregate: the first model when all hospitals share it, and otherwise
    (`own_init`) only a template of names, shapes and types until the first aggregation.
    """

    def __init__(self, strategy: Strategy, model: ModelState, *, own_init: bool) -> None:
        self.strategy = strategy
        self.model = model
        # Strategies that step from a current model have none before the first aggregation of
        # independent inits. Until then a copy of the strategy configures the legs, so that the
        # strategy itself stores no model that does not exist, and the first aggregate is the mean.
        self._without_model = own_init and any(
            hasattr(layer, "current_arrays") for layer in layers(strategy)
        )
        self._probe = copy.deepcopy(strategy) if self._without_model else None
        self._round = 1
        self._asked: dict[NodeId, Message] = {}
        self._warned = False

    def configure(self, nodes: Sequence[NodeId], config: ConfigRecord, grid: Grid) -> ConfigRecord:
        """Let the strategy configure a leg for `nodes`; return the config it would send to all."""
        messages = self.messages(nodes, config, grid)
        configs = [_config(message) for message in messages.values()]
        if any(other != configs[0] for other in configs):
            raise AggregationError(
                f"{type(self.strategy).__name__} sends hospitals different configs, but all of "
                "them agree to the same settings"
            )
        return configs[0]

    def messages(
        self, nodes: Sequence[NodeId], config: ConfigRecord, grid: Grid
    ) -> dict[NodeId, Message]:
        """Return the messages that the strategy would send to `nodes` in its current round."""
        arrays = _to_record(self.model.parameters)
        strategy = self._probe or self.strategy
        name = type(strategy).__name__
        # Flower's strategies write into the config they are given.
        own = ConfigRecord(dict(config))
        messages = list(strategy.configure_train(self._round, arrays, own, CohortView(grid, nodes)))
        self._asked = {NodeId(message.metadata.dst_node_id): message for message in messages}
        if set(self._asked) != set(nodes):
            raise AggregationError(
                f"{name} chose {len(self._asked)} of the leg's {len(nodes)} hospitals; "
                "subsampling is FedDC's: set its fraction_train to 1 and FedDC's fraction instead"
            )
        return self._asked

    def aggregate(self, contributions: Sequence[Contribution]) -> tuple[ModelState, MetricRecord]:
        """Aggregate the contributions; the result is the new current model."""
        if self._without_model:
            parameters = _mean(contributions, lambda model: model.parameters)
            metrics = MetricRecord()
            self._without_model, self._probe = False, None
        else:
            parameters, metrics = self._by_strategy(contributions)
            self._round += 1
        self._warn_of_collapse(parameters, contributions)
        buffers: Arrays = {}
        if self.model.buffers:
            buffers = _mean(contributions, lambda model: model.buffers)
        self.model = ModelState(parameters, buffers)
        return self.model, metrics

    def aggregate_points(
        self, points: FloatArray, weights: NDArray[np.float64], buffers: Arrays
    ) -> ModelState:
        """Aggregate models that are rows of a table, without messages; `buffers` are averaged.

        For this project's own aggregators and shared first models. The columns are the current
        model's parameters in their order.
        """
        point = cast(PointAggregator, self.strategy).aggregate_points(self._round, points, weights)
        self._round += 1
        parameters: Arrays = {}
        start = 0
        for name, array in self.model.parameters.items():
            values = point[start : start + array.size]
            parameters[name] = values.reshape(array.shape).astype(array.dtype)
            start += array.size
        self.model = ModelState(parameters, buffers)
        return self.model

    # --- saved state ------------------------------------------------------------------------------

    def check_savable(self) -> None:
        """Refuse a strategy whose state could not be saved."""
        saved_state.check_savable(layers(self.strategy))

    def to_state(self) -> tuple[dict[str, Any], ModelState, Arrays]:
        """Return what is to be saved: numbers, the current model, the strategy's arrays."""
        numbers, arrays = saved_state.save(layers(self.strategy))
        state = {
            "round": self._round,
            "without_model": self._without_model,
            "warned": self._warned,
            "strategy": numbers,
        }
        return state, self.model, arrays

    def restore(self, state: Mapping[str, Any], model: ModelState, arrays: Arrays) -> None:
        """Continue from what `to_state` returned."""
        # Bytes do not keep the order of names, by which FedAvgM pairs arrays with its momentum.
        self.model = ModelState(
            {name: model.parameters[name] for name in self.model.parameters},
            {name: model.buffers[name] for name in self.model.buffers},
        )
        saved_state.restore(layers(self.strategy), state["strategy"], arrays)
        self._round = state["round"]
        self._warned = state["warned"]
        self._without_model = state["without_model"]
        self._probe = copy.deepcopy(self.strategy) if self._without_model else None

    # ----------------------------------------------------------------------------------------------

    def _by_strategy(self, contributions: Sequence[Contribution]) -> tuple[Arrays, MetricRecord]:
        current, reader = self.model.parameters, ModelReader()
        replies = []
        for contribution in contributions:
            # In the current model's order, which bytes do not keep: FedAvgM and QFedAvg pair a
            # model's arrays with the current model's by position.
            arrays = record_of(
                {name: _array(reader, contribution, name, like) for name, like in current.items()}
            )
            content = self._records(contribution)
            content["arrays"] = arrays
            replies.append(Message(content, reply_to=self._asked[contribution.node]))
        aggregate, aggregated = self.strategy.aggregate_train(self._round, replies)
        if aggregate is None:
            raise AggregationError(
                f"{type(self.strategy).__name__} made no aggregate of {len(replies)} models; "
                "its log lines above say why"
            )
        result = {name: array.numpy() for name, array in aggregate.items()}
        _check_like(self.model.parameters, result, type(self.strategy).__name__)
        parameters: Arrays = {
            name: result[name].astype(array.dtype, copy=False)
            for name, array in self.model.parameters.items()
        }
        return parameters, aggregated or MetricRecord()

    def _records(self, contribution: Contribution) -> RecordDict:
        """Return what the strategy reads beside the arrays: metrics, with the weight set."""
        if contribution.records is None:
            loss_key = str(getattr(layers(self.strategy)[-1], "train_loss_key", "train_loss"))
            metrics = MetricRecord(
                {loss_key: contribution.loss, "train_accuracy": contribution.accuracy}
            )
            metrics[self.weight_key] = contribution.weight
            return RecordDict({"metrics": metrics})
        content = RecordDict(dict(contribution.records))
        for name, record in (
            contribution.records.metric_records or {"metrics": MetricRecord()}
        ).items():
            content[name] = MetricRecord({**record, self.weight_key: contribution.weight})
        return content

    @property
    def weight_key(self) -> str:
        """Return the metric by which the strategy weighs replies."""
        return str(getattr(layers(self.strategy)[-1], "weighted_by_key", "num-examples"))

    def _warn_of_collapse(self, parameters: Arrays, models: Sequence[Contribution]) -> None:
        """Warn once when averaging shrinks the models: the mean of m inits has 1/√m their norm."""
        if self._warned:
            return
        norms = [
            _norm(model.load().parameters) if model.norm is None else model.norm for model in models
        ]
        self._warned = True
        if _norm(parameters) < 0.5 * float(np.mean(norms)):
            log(
                WARNING,
                "The first aggregate's norm is %.3g, the models' is %.3g on average: independently "
                "initialised models cancel each other out, and training may never recover. "
                "Use init = shared.",
                _norm(parameters),
                float(np.mean(norms)),
            )


def _config(message: Message) -> ConfigRecord:
    config = ConfigRecord()
    for record in message.content.config_records.values():
        config.update(record)
    config.pop(_ROUND_KEY, None)
    return config


def _to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def _array(
    reader: ModelReader, contribution: Contribution, name: str, like: NDArray[np.generic]
) -> Array:
    model = contribution.model
    if isinstance(model, ModelState):
        return MemoryArray(np.asarray(model.parameters[name]))
    return StoredArray(reader, model, name, like)


def _mean(contributions: Sequence[Contribution], part: Callable[[ModelState], Arrays]) -> Arrays:
    """Average one part of the models in float64, model by model; counters stay integers."""
    total = sum(contribution.weight for contribution in contributions)
    sums: dict[str, NDArray[np.float64]] = {}
    types: dict[str, np.dtype[Any]] = {}
    for contribution in contributions:
        for name, array in part(contribution.load()).items():
            types[name] = array.dtype
            scaled = contribution.weight / total * array.astype(np.float64)
            sums[name] = sums[name] + scaled if name in sums else np.asarray(scaled)
    return {
        name: np.asarray(mean if np.issubdtype(types[name], np.floating) else np.rint(mean)).astype(
            types[name]
        )
        for name, mean in sums.items()
    }


def _check_like(expected: Arrays, result: Mapping[str, NDArray[np.generic]], who: str) -> None:
    if set(expected) != set(result) or any(
        expected[name].shape != array.shape for name, array in result.items()
    ):
        raise AggregationError(f"{who} returned arrays of other names or shapes than the model's")
    bad = [name for name, array in result.items() if not np.isfinite(array).all()]
    if bad:
        raise AggregationError(f"{who} returned values that are not finite in {bad[0]}")


def _norm(arrays: Arrays) -> float:
    squares = (float(np.square(array.astype(np.float64)).sum()) for array in arrays.values())
    return float(np.sqrt(sum(squares)))
