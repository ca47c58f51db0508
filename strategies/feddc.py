"""Federated daisy-chaining (Kamp, Fischer, Vreeken, ICLR 2023) around any Flower strategy."""

import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any, Literal, cast, get_args

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from protocol.descriptor import Descriptor, Init, Scalar
from protocol.keys import Identity
from protocol.messages import Carries, Trained, TrainLeg
from protocol.model_bytes import ModelState, Wire
from protocol.randomness import SEED_BYTES
from protocol.roster import Roster

from .answers import absent, check_quorum, sort_answers, with_reasons
from .members import ExperimentFailed, Members, meet
from .permutation import Permutation
from .planner import Plan, Planner, Task, cohort_size
from .records import to_model, to_record, trainable_numbers
from .report import LegReport, Observer
from .schedule import Ending, Leg, Schedule
from .set_up import deliver, set_up
from .wrapped import Contribution, Wrapped, check_wrapped, least_hospitals, least_models

Weighting = Literal["equal", "examples", "chain-examples"]


@dataclass(frozen=True)
class Carried:
    """A model's bytes as a request carries them; an envelope with the leg it was sealed in."""

    data: bytes = field(repr=False)
    sealed_in: int | None = None


class FedDC(Strategy):
    """Federated daisy-chaining: hand models on between aggregations.

    `FedDC(FedAvg(), daisy_period=1, aggregation_period=10)` hands every hospital's model to another
    random hospital after each round and lets FedAvg aggregate every tenth. `daisy_period=None` is
    the wrapped strategy alone; `aggregation_period=None` is plain daisy-chaining. In `start`,
    `num_rounds` is the paper's T: the number of local updates of every model.

    Parameters
    ----------
    strategy
        Any Flower message-API strategy, its own `fraction_train` left at 1. One of its server
        rounds is one aggregation.
    roster, coordinator
        Who takes part, and the identity that signs requests: the one the roster names.
    daisy_period, aggregation_period
        Rounds between hand-overs (d) and between aggregations (b); `None` never.
    permutation
        `uniform`, `derangement` or `coverage`: see `strategies.permutation`.
    fraction
        Share of the hospitals drawn in each leg (at least two; everyone in the last).
    weighting
        Weight of a model in the aggregate: all `equal`, by the hospital's `examples`, or by the
        examples of all hospitals its chain has visited since the last aggregation
        (`chain-examples`), which the coordinator works out from its own routes.
    init
        `shared`: all begin with `initial_arrays`; `own`: each hospital initialises its own model,
        and `initial_arrays` only tell names, shapes and types.
    buffers
        Names in `initial_arrays` that are not trained; averaged here, never by `strategy`.
    ramp, tail, random_schedule
        See `strategies.schedule.Schedule`.
    quorum
        Share of the drawn hospitals that must answer for a leg to count.
    sealed
        Whether models are sealed for their recipients in hand-overs, so that nobody in between can
        read them. Real hospitals insist on it.
    start_timeout
        Seconds to wait at the start until every member is connected.
    route_seed, training_seed
        The two secrets: routes stay with the coordinator, training streams go to the hospitals.
        Drawn at random unless given.
    observer
        Is told how the experiment goes.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        roster: Roster,
        coordinator: Identity,
        daisy_period: int | None = 1,
        aggregation_period: int | None = 5,
        permutation: Permutation = "uniform",
        fraction: float = 1.0,
        weighting: Weighting = "equal",
        init: Init = "shared",
        buffers: Collection[str] = (),
        ramp: bool = False,
        tail: float = 0.0,
        random_schedule: bool = False,
        quorum: float = 0.5,
        sealed: bool = True,
        start_timeout: float = 120.0,
        route_seed: bytes | None = None,
        training_seed: bytes | None = None,
        observer: Observer | None = None,
    ) -> None:
        for name, share in (("fraction", fraction), ("quorum", quorum)):
            if not 0 < share <= 1:
                raise ValueError(f"{name} must be more than 0 and at most 1, got {share}")
        for name, value, choices in (
            ("permutation", permutation, get_args(Permutation)),
            ("weighting", weighting, get_args(Weighting)),
            ("init", init, get_args(Init)),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        self.strategy = strategy
        self.roster = roster
        self.coordinator = coordinator
        self.daisy_period = daisy_period
        self.aggregation_period = aggregation_period
        self.permutation = permutation
        self.fraction = fraction
        self.weighting = weighting
        self.init = init
        self.buffers = frozenset(buffers)
        self.ramp = ramp
        self.tail = tail
        self.random_schedule = random_schedule
        self.quorum = quorum
        self.sealed = sealed
        self.start_timeout = start_timeout
        self.route_seed = route_seed or secrets.token_bytes(SEED_BYTES)
        self.training_seed = training_seed or secrets.token_bytes(SEED_BYTES)
        self.observer = observer or Observer()
        self.schedule(rounds=1)  # refuses impossible periods here, where they were given

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run an experiment: Algorithm 1, at the server.

        `train_config` holds the trainer's settings and the task's `shape` and `classes`; `timeout`
        is a leg's, in seconds. `evaluate_fn` is called for each aggregate with the number of its
        leg, by which the result's entries are keyed. Hospitals evaluate aggregates on their own
        held-out data as they receive them, so `evaluate_config` is not used.
        """
        legs = self.schedule(num_rounds).legs
        first_model = to_model(initial_arrays, self.buffers)
        wrapped = Wrapped(self.strategy, first_model, own_init=self.init == "own")
        self.summary()

        # Set-up: learn who takes part, and have everyone agree to all settings at once.
        members = meet(
            grid, self.roster, self.coordinator, patience=self.start_timeout, timeout=timeout
        )
        self._check(members, first_model)
        config = ConfigRecord(dict(train_config or {}))
        agreed = wrapped.configure(members.nodes, config, grid)
        descriptor = self._descriptor(num_rounds, agreed)
        wire = _wire(descriptor)
        examples = set_up(grid, members, descriptor, timeout=timeout)
        self._check_examples(examples)
        planner = self._planner(members, first_model.to_bytes(wire=wire), legs[-1].number)
        self.observer.started(descriptor.experiment, examples, len(legs))
        signed: dict[int, bytes] = {}

        result = Result()
        for leg in legs:
            log(INFO, "[leg %d/%d] ends in %s", leg.number, len(legs), leg.ending)
            started = time.monotonic()
            plan = planner.plan(leg, members.present(grid))
            least = self._least_models(leg, first_model)
            connected = max(least, least_hospitals(self.strategy))
            check_quorum(plan, members, absent(plan), quorum=self.quorum, least=connected)
            nodes = [members.nodes[hospital] for hospital in plan.cohort]
            if wrapped.configure(nodes, config, grid) != agreed:
                raise ValueError(
                    f"{type(self.strategy).__name__} changed its config in leg {leg.number}, but "
                    "hospitals agree to an experiment's settings once, before it starts"
                )
            # Locally, at every hospital drawn: train, and send the model.
            for task in plan.tasks:
                if task.leg == leg.number:  # what is parked is asked for again, byte for byte
                    signed[task.hospital] = members.sign(
                        _request(task, descriptor.experiment, members)
                    )
            answers = members.ask(
                grid,
                {members.names[task.hospital]: signed[task.hospital] for task in plan.tasks},
                timeout=timeout,
                group=f"leg-{leg.number}",
            )
            trained, missing = sort_answers(plan, answers, members, wrapped.model, wire)
            check_quorum(plan, members, missing, quorum=self.quorum, least=least)
            if missing:
                who = with_reasons(members, missing)
                log(WARNING, "leg %d: missing %s", leg.number, who)

            weights: dict[str, float] = {}
            if leg.ending is Ending.HAND_OVER:
                # Daisy chaining: model i waits for hospital π(i), which the plan has drawn.
                planner.handed_over(
                    plan, {h: Carried(reply.payload, reply.leg) for h, reply in trained.items()}
                )
            else:
                # Aggregation: all who were drawn go on from the aggregate.
                models = self._contributions(plan, trained, members, examples, wire)
                aggregate, metrics = wrapped.aggregate(list(models.values()))
                planner.aggregated(plan, models, Carried(aggregate.to_bytes(wire=wire)))
                weights = {members.names[h]: model.weight for h, model in models.items()}
                result.arrays = to_record(aggregate)
                result.train_metrics_clientapp[leg.number] = metrics
                self.observer.aggregated(leg, aggregate)
                if evaluate_fn and (figures := evaluate_fn(leg.number, result.arrays)):
                    result.evaluate_metrics_serverapp[leg.number] = figures
            signed = {hospital: signed[hospital] for hospital in planner.parked}
            self.observer.leg_ended(
                LegReport(
                    leg=leg,
                    asked=_names(members, plan.drawn),
                    answers=answers,
                    missing={members.names[h]: why for h, why in missing.items()},
                    parked=_names(members, planner.parked),
                    seconds=time.monotonic() - started,
                    lost_chains=planner.lost_chains,
                    weights=weights,
                )
            )

        final = wrapped.model.to_bytes(wire=wire)
        self.observer.closed(deliver(grid, members, descriptor.experiment, final, timeout=timeout))
        return result

    def schedule(self, rounds: int) -> Schedule:
        """Return the legs of an experiment of `rounds` rounds."""
        return Schedule(
            rounds,
            self.daisy_period,
            self.aggregation_period,
            ramp=self.ramp,
            tail=self.tail,
            secret=self.route_seed if self.random_schedule else None,
        )

    def _check(self, members: Members, model: ModelState) -> None:
        check_wrapped(
            self.strategy,
            parameters=trainable_numbers(model),
            cohort=cohort_size(len(members), self.fraction),
            chained=self.daisy_period is not None or self.fraction < 1,
        )

    def _check_examples(self, examples: Mapping[str, int | None]) -> None:
        silent = [name for name, count in examples.items() if count is None]
        if silent and self.weighting != "equal":
            raise ExperimentFailed(
                f"weighting by examples needs their numbers, which {', '.join(silent)} keeps to "
                "itself: use equal weights"
            )

    def _descriptor(self, rounds: int, config: ConfigRecord) -> Descriptor:
        shape: Any = config.get("shape", [])
        classes: Any = config.get("classes", 0)
        training: dict[str, Scalar] = {}
        for key, value in config.items():
            if isinstance(value, bool | int | float | str) and key != "classes":
                training[key] = value
            elif key not in ("shape", "classes"):
                raise ValueError(f"train_config: {key} must be a number, text, true or false")
        return Descriptor(
            experiment=secrets.token_hex(8),
            rounds=rounds,
            daisy_period=self.daisy_period,
            aggregation_period=self.aggregation_period,
            init=self.init,
            shape=tuple(shape),
            classes=classes,
            training=training,
            training_seed=self.training_seed,
            sealed=self.sealed,
            roster=self.roster.digest,
        )

    def _planner(self, members: Members, first_model: bytes, last_leg: int) -> Planner[Carried]:
        shared = (Carries.AGGREGATE, Carried(first_model))
        return Planner(
            hospitals=len(members),
            last_leg=last_leg,
            start=shared if self.init == "shared" else (Carries.NOTHING, Carried(b"")),
            permutation=self.permutation,
            fraction=self.fraction,
            route_seed=self.route_seed,
        )

    def _least_models(self, leg: Leg, model: ModelState) -> int:
        if leg.ending is Ending.HAND_OVER:
            return 1
        return least_models(self.strategy, trainable_numbers(model))

    def _contributions(
        self,
        plan: Plan[Carried],
        trained: Mapping[int, Trained],
        members: Members,
        examples: Mapping[str, int | None],
        wire: Wire,
    ) -> dict[int, Contribution]:
        """Return the models to aggregate, in roster order, with their weights."""
        contributions = {}
        for task in plan.tasks:
            reply = trained.get(task.hospital)
            if reply is None:
                continue
            model = ModelState.from_bytes(reply.payload, wire=wire).without_optimizer()
            self.observer.received(plan.leg, members.names[task.hospital], model)
            visited = {task.hospital}
            if self.weighting == "chain-examples":
                visited |= set(task.parcel.chain.visits)
            weight = sum(examples[members.names[hospital]] or 0 for hospital in visited)
            contributions[task.hospital] = Contribution(
                node=members.nodes[task.hospital],
                model=model,
                weight=1.0 if self.weighting == "equal" else float(weight),
                loss=math.nan if reply.loss is None else reply.loss,
                accuracy=math.nan if reply.accuracy is None else reply.accuracy,
            )
        return contributions

    def summary(self) -> None:
        """Log when models travel and what is wrapped."""
        log(INFO, "Federated daisy-chaining:")
        log(INFO, "\t├── hand-over every %s rounds (%s)", self.daisy_period, self.permutation)
        log(INFO, "\t├── aggregation every %s rounds (%s)", self.aggregation_period, self.weighting)
        log(INFO, "\t├── init %s, fraction %g, quorum %g", self.init, self.fraction, self.quorum)
        log(INFO, "\t└── around %s:", type(self.strategy).__name__)
        self.strategy.summary()

    # Flower's hooks are the wrapped strategy's: `start` calls them where a leg needs them.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)


def _request(task: Task[Carried], experiment: str, members: Members) -> TrainLeg:
    return TrainLeg(
        experiment=experiment,
        leg=task.leg,
        first_round=task.first_round,
        local_rounds=task.local_rounds,
        carries=task.parcel.carries,
        sealed_in=task.parcel.content.sealed_in,
        recipient=None if task.recipient is None else members.names[task.recipient],
        seen=members.heads.get(members.names[task.hospital]),
        payload=task.parcel.content.data,
    )


def _names(members: Members, positions: Iterable[int]) -> tuple[str, ...]:
    return tuple(members.names[position] for position in positions)


def _wire(descriptor: Descriptor) -> Wire:
    wire: Any = descriptor.training.get("wire-dtype", "same")
    if wire not in get_args(Wire):
        raise ValueError(f"wire-dtype must be one of {', '.join(get_args(Wire))}, got {wire!r}")
    return cast(Wire, wire)
