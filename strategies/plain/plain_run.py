"""A plain run: daisy-chaining around any ClientApp, one `train` call per node and round."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from logging import INFO, WARNING

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from numpy.typing import NDArray

from operation.flower.logger import log
from protocol.messages import Carries
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg
from protocol.sealing.sealed_arrays import RECORD, is_sealed
from strategies.identifiers import NodeId, Position
from strategies.routing.planner import ModelRef, Plan, Planner, cohort_size
from strategies.settings import FedDCSettings
from strategies.wrapped.adapter import Contribution, Wrapped
from strategies.wrapped.array_records import to_record
from strategies.wrapped.requirements import (
    check_wrapped,
    layers,
    least_hospitals,
    least_models,
)

from .addresses import Addresses
from .model_store import ModelStore
from .rounds import Rounds

_FIRST_MODEL = "first"
_ROUND_KEY = "server-round"


@dataclass(frozen=True)
class _StoredModel:
    """A node's reply in the store, parted as the first model is."""

    store: ModelStore
    name: str
    like: ModelState

    def load(self) -> ModelState:
        arrays = self.store.get(self.name)
        return ModelState(
            {name: arrays[name].numpy() for name in self.like.parameters},
            {name: arrays[name].numpy() for name in self.like.buffers},
        )


@dataclass(frozen=True)
class _Reply:
    """A node's reply: its model is in the store, everything else is here."""

    model: ModelRef
    records: RecordDict


class PlainRun:
    """What FedDC's hooks do between the first round and the last.

    The nodes are fixed from one aggregation to the next; `nodes[position]` is a node's id. Every
    connected node trains one model in every round. At the end of a leg the drawn nodes hand their
    models over or send them for aggregation; all other models stay where they are.
    """

    def __init__(
        self,
        settings: FedDCSettings,
        wrapped: Wrapped,
        names: tuple[str, ...],
        rounds: Rounds,
        route_seed: bytes,
        nodes: Iterable[int],
        *,
        sealed: bool,
    ) -> None:
        self._settings, self._wrapped, self._rounds = settings, wrapped, rounds
        self._names = names  # of all arrays, in the user's order
        self._nodes = [NodeId(node) for node in sorted(nodes)]
        self._store = ModelStore()
        self._store.put(_FIRST_MODEL, self._record())
        self._examples: dict[NodeId, float] = {}
        check_wrapped(
            wrapped.strategy,
            parameters=wrapped.model.trainable_numbers,
            cohort=cohort_size(len(self._nodes), settings.fraction),
            chained=settings.is_chained,
        )
        self._planner = Planner(
            hospitals=len(self._nodes),
            last_leg=rounds.last_leg,
            start=(Carries.AGGREGATE, ModelRef(_FIRST_MODEL)),
            permutation=settings.permutation,
            fraction=settings.fraction,
            route_seed=route_seed,
        )
        self._addresses = Addresses() if sealed else None
        self._aggregate: tuple[ModelRef, ArrayRecord] | None = None  # until nodes receive it
        # Of the current round:
        self._leg: Leg
        self._plan: Plan | None = None  # in the last round of a leg
        self._asked: dict[Position, ModelRef] = {}
        self._grid: Grid

    def has_aggregated(self, server_round: int) -> bool:
        """Return whether a round ends in an aggregation."""
        leg = self._rounds.leg_of(server_round)
        return leg.ending is Ending.AGGREGATION and leg.last_round == server_round - 1

    # --- a round ---

    def configure(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterator[Message]:
        """Return each node's message: the wrapped strategy's, with the model that waits for it.

        `arrays` are the last aggregate, which a strategy around FedDC may have changed.
        """
        self._take_over(arrays)
        self._grid = grid
        self._leg = self._rounds.leg_of(server_round)
        connected = set(grid.get_node_ids())
        present = {Position(p) for p, node in enumerate(self._nodes) if node in connected}
        self._check_present(server_round, present)
        moved = {} if self._addresses else self._planner.redistribute(present)
        for hospital, models in moved.items():
            log(
                WARNING,
                "round %d: node %d is not connected; other nodes train its %d model(s)",
                server_round,
                self._nodes[hospital],
                models,
            )
        if self._addresses:
            self._addresses.learn([self._nodes[hospital] for hospital in sorted(present)], grid)
        is_last = self._leg.last_round == server_round - 1
        self._plan = self._planner.plan(self._leg, present) if is_last else None
        waiting = {hospital: self._planner.next_model(hospital) for hospital in sorted(present)}
        self._asked = {hospital: model for hospital, model in waiting.items() if model is not None}
        # All nodes present are configured, also those without a model: a strategy may insist on a
        # number of nodes.
        nodes = [self._nodes[hospital] for hospital in sorted(present)]
        messages = self._wrapped.messages(nodes, config, grid)
        # Lazily: each message is made when it is sent.
        return (
            self._message(messages[self._nodes[hospital]], hospital, model, server_round)
            for hospital, model in self._asked.items()
        )

    def aggregate(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the replies in; hand the models over, aggregate them, or leave them where they are.

        Return the new aggregate, if there is one, and the round's metrics.
        """
        answered = self._take_in(server_round, replies)
        models = {hospital: reply.model for hospital, reply in answered.items()}
        plan, planner = self._plan, self._planner
        lost_before = planner.lost_chains
        drawn = {a.hospital for a in plan.assignments} if plan else set()
        # Daisy-chaining's other half: models that are not drawn, or not yet, stay.
        planner.stayed({h: model for h, model in models.items() if h not in drawn})
        aggregate: ArrayRecord | None = None
        if plan is None:
            metrics = self._metrics(answered)
        elif plan.leg.ending is Ending.HAND_OVER:
            # Model i waits for node π(i), which the plan has drawn; also one that was not trained.
            handed = {h: model for h, model in models.items() if h in drawn}
            failed = drawn - set(handed)
            # A sealed model opens at its recipient only: if that one fails, the chain ends here.
            broken = {h for h in failed if self._asked[h].sealed_in is not None}
            planner.handed_over(plan, handed, broken=broken, passed_on=failed - broken)
            metrics = self._metrics(answered)
        else:
            aggregate, metrics = self._aggregated(server_round, plan, answered)
        if lost := planner.lost_chains - lost_before:
            log(WARNING, "round %d: %d chain(s) were lost", server_round, lost)
        self._store.keep_only({model.name for model in planner.models()})
        return aggregate, metrics

    def _take_over(self, arrays: ArrayRecord) -> None:
        """Continue from an aggregate as the caller returns it: with noise, for example."""
        if self._aggregate is not None and arrays is not self._aggregate[1]:
            model = self._wrapped.model
            self._wrapped.model = ModelState(
                {name: arrays[name].numpy() for name in model.parameters},
                {name: arrays[name].numpy() for name in model.buffers},
            )
            self._store.put(self._aggregate[0].name, self._record())
        self._aggregate = None

    def _message(
        self, message: Message, hospital: Position, model: ModelRef, server_round: int
    ) -> Message:
        """Return the strategy's message with this node's model and the run's round."""
        content = RecordDict()
        for key, record in message.content.items():
            if isinstance(record, ConfigRecord) and _ROUND_KEY in record:
                content[key] = ConfigRecord({**record, _ROUND_KEY: server_round})
            else:
                content[key] = record
        (array_key, *others) = _array_records(content)
        if others:
            raise AggregationError(
                f"{type(self._wrapped.strategy).__name__} sends several ArrayRecords; FedDC can "
                "replace only one"
            )
        content[array_key] = self._store.get(model.name)
        if self._addresses:
            recipient = self._recipient(hospital)
            node_id = None if recipient is None else self._nodes[recipient]
            content[RECORD] = self._addresses.request(server_round, node_id, model.sealed_in)
        node = message.metadata.dst_node_id
        return Message(content, node, MessageType.TRAIN, ttl=message.metadata.ttl)

    def _recipient(self, hospital: Position) -> Position | None:
        """Return whom a node's model goes to after this round; `None`: to the aggregation."""
        for assignment in self._plan.assignments if self._plan else ():
            if assignment.hospital == hospital:
                return assignment.recipient
        return hospital  # it stays

    def _take_in(self, server_round: int, replies: Iterable[Message]) -> dict[Position, _Reply]:
        """Store each model as it arrives; log which nodes did not send a usable one, and why."""
        positions = {self._nodes[hospital]: hospital for hospital in self._asked}
        problems = dict.fromkeys(self._asked, "no reply in time")
        answered: dict[Position, _Reply] = {}
        for reply in replies:
            hospital = positions.get(NodeId(reply.metadata.src_node_id))
            if hospital is None:
                continue  # Flower reports a killed SuperNode under another id
            if reply.has_error():
                problems[hospital] = f"error {reply.error.code}: {reply.error.reason}"
                continue
            problem = self._problem(reply.content, hospital)
            if problem:
                problems[hospital] = problem
                continue
            problems.pop(hospital, None)
            answered[hospital] = self._stored(reply.content, server_round, hospital)
        for hospital, problem in sorted(problems.items()):
            node = self._nodes[hospital]
            log(WARNING, "round %d: node %d did not train: %s", server_round, node, problem)
        if not answered:
            raise AggregationError(f"round {server_round}: no node trained; see the warnings above")
        return dict(sorted(answered.items()))

    def _stored(self, content: RecordDict, server_round: int, hospital: Position) -> _Reply:
        ((array_key, arrays),) = _array_records(content).items()
        model = ModelRef(f"{server_round}-{hospital}", server_round if is_sealed(arrays) else None)
        self._store.put(model.name, arrays)
        records = RecordDict({key: content[key] for key in content if key != array_key})
        for metrics in records.metric_records.values():
            if isinstance(count := metrics.get(self._wrapped.weight_key), int | float):
                self._examples[self._nodes[hospital]] = float(count)
        return _Reply(model, records)

    def _problem(self, content: RecordDict, hospital: Position) -> str:
        """Return why a reply holds no usable model, or ""."""
        records = _array_records(content)
        if len(records) != 1:
            return f"it replied with {len(records)} ArrayRecords instead of one"
        (arrays,) = records.values()
        if self._addresses and self._recipient(hospital) is not None:
            return "" if is_sealed(arrays) else "it did not seal its model"
        expected = self._wrapped.model.parameters | self._wrapped.model.buffers
        if set(arrays) != set(expected):
            return "its model has other arrays"
        for name, like in expected.items():
            if tuple(arrays[name].shape) != like.shape:
                return f"its array {name} has another shape"
            if not _is_finite(arrays[name], like):
                return f"its array {name} is not finite: training diverged"
        return ""

    # --- an aggregation ---

    def _aggregated(
        self, server_round: int, plan: Plan, answered: dict[Position, _Reply]
    ) -> tuple[ArrayRecord, MetricRecord]:
        contributions = {
            a.hospital: Contribution(
                node=self._nodes[a.hospital],
                model=_StoredModel(self._store, reply.model.name, self._wrapped.model),
                weight=self._weight(a.hospital, set(a.queued.chain.visits), reply),
                records=reply.records,
            )
            for a in plan.assignments
            if (reply := answered.get(a.hospital))
        }
        needed = least_models(self._wrapped.strategy, self._wrapped.model.trainable_numbers)
        if len(contributions) < needed:
            raise AggregationError(
                f"round {server_round}: {len(contributions)} models to aggregate, but "
                f"{type(self._wrapped.strategy).__name__} needs {needed}"
            )
        _, metrics = self._wrapped.aggregate(list(contributions.values()))
        record, stored = self._record(), ModelRef(f"aggregate-{server_round}")
        self._store.put(stored.name, record)
        self._aggregate = (stored, record)
        self._planner.aggregated(plan, contributions, stored)
        self._read_nodes(server_round, stored)
        return record, metrics

    def _read_nodes(self, server_round: int, aggregate: ModelRef) -> None:
        """Let newcomers start from the aggregate; drop nodes that are gone."""
        nodes = [NodeId(node) for node in sorted(self._grid.get_node_ids())]
        if nodes == self._nodes or not nodes:
            return
        former = {node: Position(position) for position, node in enumerate(self._nodes)}
        for verb, some in (
            ("joined", set(nodes) - set(self._nodes)),
            ("left", set(self._nodes) - set(nodes)),
        ):
            if some:
                log(INFO, "round %d: %d node(s) %s", server_round, len(some), verb)
        self._planner.change_members([former.get(node) for node in nodes], server_round, aggregate)
        self._nodes = nodes

    def _weight(self, hospital: Position, visited: set[Position], reply: _Reply) -> float:
        weighting = self._settings.weighting
        if weighting == "equal":
            return 1.0
        if weighting == "examples":
            visited = set()
        nodes = {self._nodes[position] for position in visited | {hospital}}
        key = self._wrapped.weight_key
        if silent := nodes - set(self._examples):
            raise AggregationError(
                f"weighting by examples needs the metric {key!r} in every reply; node "
                f"{min(silent)} has none: report it, or use weighting='equal'"
            )
        return sum(self._examples[node] for node in sorted(nodes))

    def _metrics(self, answered: dict[Position, _Reply]) -> MetricRecord | None:
        """Return the wrapped strategy's summary of a round's metrics, where it makes one."""
        summarise = getattr(layers(self._wrapped.strategy)[-1], "train_metrics_aggr_fn", None)
        key = self._wrapped.weight_key
        records = [reply.records for reply in answered.values()]
        if summarise is None or not all(_has_metric(record, key) for record in records):
            return None
        found: MetricRecord = summarise(records, key)
        return found

    def _record(self) -> ArrayRecord:
        """Return the current aggregate in the order of the user's arrays."""
        arrays = to_record(self._wrapped.model)
        return ArrayRecord({name: arrays[name] for name in self._names})

    def _check_present(self, server_round: int, present: set[Position]) -> None:
        needed = least_hospitals(self._wrapped.strategy)
        if len(present) < needed:
            raise AggregationError(
                f"round {server_round}: {len(present)} of {len(self._nodes)} nodes are connected, "
                f"{type(self._wrapped.strategy).__name__} needs {needed}"
            )


def _array_records(content: RecordDict) -> dict[str, ArrayRecord]:
    # Several times as fast as `content.array_records`, which stays in step with its content.
    return {key: record for key, record in content.items() if isinstance(record, ArrayRecord)}


def _is_finite(array: Array, like: NDArray[np.generic]) -> bool:
    if not np.issubdtype(like.dtype, np.inexact):
        return True
    if like.size and array.dtype == str(like.dtype) and len(array.data) >= like.nbytes:
        # The numbers follow a header, which takes longer to read than those of a small model.
        data = array.data
        numbers = np.frombuffer(data, like.dtype, offset=len(data) - like.nbytes)
        return bool(np.isfinite(numbers).all())
    return bool(np.isfinite(array.numpy()).all())


def _has_metric(records: RecordDict, key: str) -> bool:
    metrics = list(records.metric_records.values())
    return len(metrics) == 1 and key in metrics[0]
