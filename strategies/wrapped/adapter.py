"""The wrapped strategy, seen from FedDC: it configures every leg and aggregates at some of them.

It is shown exactly the leg's cohort and only trainable parameters; whatever else a model has
(running statistics, counters) is averaged here.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import Bulyan, MultiKrum, QFedAvg, Strategy
from numpy.typing import NDArray

from operation.flower.grid import Run
from operation.flower.logger import log
from protocol.model_bytes import Arrays, ModelState
from strategies.aggregators.radon import RadonPoint, radon_number
from strategies.session.spool import StoredModel

from . import saved_state

_MINIMA = ("min_train_nodes", "min_available_nodes")
_NUMPY = "numpy.ndarray"  # how Flower calls its arrays' form
_ROUND_KEY = "server-round"  # FedAvg adds it to every config; our requests carry the leg


@dataclass(frozen=True)
class Contribution:
    """One hospital's model for an aggregation, in roster order, with its weight and figures."""

    node: int
    model: ModelState | StoredModel  # where models are many, they are read one at a time
    weight: float
    loss: float
    accuracy: float

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
        # independent inits. Until then a copy is asked, so that the strategy itself remembers no
        # model that never was, and the first aggregate is the plain mean.
        self._without_model = own_init and any(
            hasattr(layer, "current_arrays") for layer in _layers(strategy)
        )
        self._probe = copy.deepcopy(strategy) if self._without_model else None
        self._round = 1
        self._asked: dict[int, Message] = {}
        self._warned = False

    def configure(self, nodes: Sequence[int], config: ConfigRecord, grid: Grid) -> ConfigRecord:
        """Let the strategy configure a leg for `nodes`; return the config it would send."""
        arrays = _to_record(self.model.parameters)
        strategy = self._probe or self.strategy
        # Flower's strategies write into the config they are given.
        own = ConfigRecord(dict(config))
        messages = list(strategy.configure_train(self._round, arrays, own, CohortView(grid, nodes)))
        self._asked = {message.metadata.dst_node_id: message for message in messages}
        if set(self._asked) != set(nodes):
            raise AggregationError(
                f"{_name(strategy)} chose {len(self._asked)} of the leg's {len(nodes)} hospitals; "
                "subsampling is FedDC's: set its fraction_train to 1 and FedDC's fraction instead"
            )
        configs = [_config(message) for message in messages]
        if any(other != configs[0] for other in configs):
            raise AggregationError(
                f"{_name(strategy)} sends hospitals different configs, but all of them agree to "
                "the same settings"
            )
        return configs[0]

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

    # --- on paper, so that a resumed run goes on from here ----------------------------------------

    def check_savable(self) -> None:
        """Refuse a strategy that could not be written down."""
        saved_state.check_savable(_layers(self.strategy))

    def to_state(self) -> tuple[dict[str, Any], ModelState, Arrays]:
        """Return what is to be written down: numbers, the current model, the strategy's arrays."""
        numbers, arrays = saved_state.save(_layers(self.strategy))
        state = {
            "round": self._round,
            "without_model": self._without_model,
            "warned": self._warned,
            "strategy": numbers,
        }
        return state, self.model, arrays

    def restore(self, state: Mapping[str, Any], model: ModelState, arrays: Arrays) -> None:
        """Take over what `to_state` returned."""
        # Bytes do not keep the order of names, by which FedAvgM pairs arrays with its momentum.
        self.model = ModelState(
            {name: model.parameters[name] for name in self.model.parameters},
            {name: model.buffers[name] for name in self.model.buffers},
        )
        saved_state.restore(_layers(self.strategy), state["strategy"], arrays)
        self._round = state["round"]
        self._warned = state["warned"]
        self._without_model = state["without_model"]
        self._probe = copy.deepcopy(self.strategy) if self._without_model else None

    # ----------------------------------------------------------------------------------------------

    def _by_strategy(self, contributions: Sequence[Contribution]) -> tuple[Arrays, MetricRecord]:
        inner = _layers(self.strategy)[-1]
        key = str(getattr(inner, "weighted_by_key", "num-examples"))
        loss_key = str(getattr(inner, "train_loss_key", "train_loss"))
        current, reader = self.model.parameters, _Reader()
        replies = []
        for contribution in contributions:
            metrics = MetricRecord(
                {
                    loss_key: contribution.loss,
                    "train_accuracy": contribution.accuracy,
                    key: contribution.weight,
                }
            )
            # In the current model's order, which bytes do not keep: FedAvgM and QFedAvg pair a
            # model's arrays with the current model's by position.
            arrays = ArrayRecord(
                {name: _array(reader, contribution, name, like) for name, like in current.items()}
            )
            content = RecordDict({"arrays": arrays, "metrics": metrics})
            replies.append(Message(content, reply_to=self._asked[contribution.node]))
        aggregate, aggregated = self.strategy.aggregate_train(self._round, replies)
        if aggregate is None:
            raise AggregationError(
                f"{_name(self.strategy)} made no aggregate of {len(replies)} models; "
                "its log lines above say why"
            )
        result = {name: array.numpy() for name, array in aggregate.items()}
        _check_like(self.model.parameters, result, _name(self.strategy))
        parameters: Arrays = {
            name: result[name].astype(array.dtype, copy=False)
            for name, array in self.model.parameters.items()
        }
        return parameters, aggregated or MetricRecord()

    def _warn_of_collapse(self, parameters: Arrays, models: Sequence[Contribution]) -> None:
        """Warn once when averaging shrinks the models: the mean of m inits has 1/√m their norm."""
        if self._warned:
            return
        norms = [_norm(model.load().parameters) for model in models]
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


def check_wrapped(strategy: Strategy, *, parameters: int, cohort: int, chained: bool) -> None:
    """Refuse, before anything is sent, a strategy that could not aggregate a cohort of this size.

    `parameters` counts the model's trainable numbers; `chained` says whether models are handed on.
    """
    strategy = _layers(strategy)[-1]
    name = _name(strategy)
    fraction = getattr(strategy, "fraction_train", 1.0)
    if fraction != 1.0:
        raise ValueError(
            f"{name} has fraction_train={fraction}: subsampling is FedDC's, "
            "set fraction_train=1.0 and FedDC(fraction=…) instead"
        )
    for attribute in _MINIMA:
        wanted = getattr(strategy, attribute, 0)
        if wanted > cohort:
            raise ValueError(
                f"{name} has {attribute}={wanted}, but a leg has {cohort} hospitals: "
                "it would wait for ever"
            )
    if isinstance(strategy, QFedAvg) and chained:
        raise ValueError(
            "QFedAvg weighs a hospital by its own loss, but a model that was handed on belongs to "
            "no one hospital: use daisy_period=None and fraction=1 with it"
        )
    if cohort < (needed := _least_to_withstand(strategy)):
        raise ValueError(
            f"{name} withstands {getattr(strategy, 'num_malicious_nodes', 0)} malicious hospitals "
            f"only among {needed} or more; a leg has {cohort}"
        )
    if isinstance(strategy, RadonPoint):
        strategy.check(parameters=parameters, hospitals=cohort)


def least_hospitals(strategy: Strategy) -> int:
    """Return how many hospitals any leg must have: for more, FedAvg's kin would wait for ever."""
    inner = _layers(strategy)[-1]
    return max(1, *(int(getattr(inner, attribute, 0)) for attribute in _MINIMA))


def least_models(strategy: Strategy, parameters: int) -> int:
    """Return how many models an aggregation must have for the strategy to keep its promise."""
    inner = _layers(strategy)[-1]
    least = max(least_hospitals(inner), _least_to_withstand(inner))
    if isinstance(inner, RadonPoint):
        least = max(least, radon_number(parameters), inner.minimum or 0)
    return least


def _least_to_withstand(strategy: Strategy) -> int:
    malicious = int(getattr(strategy, "num_malicious_nodes", 0))
    if isinstance(strategy, Bulyan):
        return 4 * malicious + 3
    return 2 * malicious + 3 if isinstance(strategy, MultiKrum) else 1


def _layers(strategy: Strategy) -> list[Strategy]:
    """Return the strategy and those it decorates in turn: Flower's privacy wrappers do."""
    layers = [strategy]
    while isinstance(inner := getattr(layers[-1], "strategy", None), Strategy):
        layers.append(inner)
    return layers


class CohortView(Grid):
    """A Grid on which exactly the leg's cohort is connected; nothing can be sent through it."""

    def __init__(self, grid: Grid, nodes: Sequence[int]) -> None:
        self._grid = grid
        self._nodes = list(nodes)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._nodes)

    @property
    def run(self) -> Run:
        return self._grid.run

    def set_run(self, run: Run) -> None:
        raise RuntimeError(_READ_ONLY)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise RuntimeError(_READ_ONLY)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise RuntimeError(_READ_ONLY)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        raise RuntimeError(_READ_ONLY)


_READ_ONLY = "a wrapped strategy configures a leg and aggregates; sending is FedDC's part"


def _config(message: Message) -> ConfigRecord:
    config = ConfigRecord()
    for record in message.content.config_records.values():
        config.update(record)
    config.pop(_ROUND_KEY, None)
    return config


def _name(strategy: Strategy) -> str:
    return type(strategy).__name__


def _to_record(arrays: Mapping[str, NDArray[np.generic]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


class _Reader:
    """Reads stored models and keeps the last: a strategy takes one model's arrays in a row."""

    def __init__(self) -> None:
        self._last: tuple[StoredModel, ModelState] | None = None

    def load(self, stored: StoredModel) -> ModelState:
        if self._last is None or self._last[0] is not stored:
            self._last = None  # before the next is read: never two
            self._last = (stored, stored.load())
        return self._last[1]


class _StoredArray(Array):
    """Read when it is asked for: a strategy that adds models up holds one of them at a time."""

    def __init__(
        self, reader: _Reader, stored: StoredModel, name: str, like: NDArray[np.generic]
    ) -> None:
        self.dtype, self.shape, self.stype = str(like.dtype), like.shape, _NUMPY
        self._reader, self._stored, self._name = reader, stored, name

    @property
    def data(self) -> bytes:  # type: ignore[override]
        return Array(self.numpy()).data

    def numpy(self) -> NDArray[Any]:
        return np.asarray(self._reader.load(self._stored).parameters[self._name])


def _array(
    reader: _Reader, contribution: Contribution, name: str, like: NDArray[np.generic]
) -> Array:
    model = contribution.model
    if isinstance(model, ModelState):
        return Array(np.asarray(model.parameters[name]))
    return _StoredArray(reader, model, name, like)


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
