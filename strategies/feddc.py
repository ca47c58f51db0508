"""Federated daisy-chaining (Kamp, Fischer, Vreeken, ICLR 2023) around any Flower strategy."""

import secrets
import time
from collections.abc import Callable, Collection, Iterable
from logging import INFO
from typing import Literal, get_args

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from operation.flower.logger import log
from protocol.descriptor import Init
from protocol.keys import Identity
from protocol.randomness import SEED_BYTES
from protocol.schedule import Ending, Schedule
from protocol.study.roster import Roster
from strategies.routing.permutation import Permutation
from strategies.session.beginning import begin, renew
from strategies.session.course import Carried
from strategies.session.journal import Journal
from strategies.session.leg import ask, contributions, plan_leg
from strategies.session.members import Members
from strategies.session.observer import LegReport, Observer
from strategies.session.reply_notifier import ReplyNotifier
from strategies.session.set_up import deliver
from strategies.wrapped.adapter import Wrapped
from strategies.wrapped.records import to_model, to_record

Weighting = Literal["equal", "examples", "chain-examples"]


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
        `uniform`, `derangement` or `coverage`: see `strategies.routing.permutation`.
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
        See `protocol.schedule.Schedule`.
    quorum, quorum_wait
        Share of the drawn hospitals that must answer for a leg to count, and the seconds to wait
        for those who are missing before the experiment ends with an error.
    sealed
        Whether models are sealed for their recipients in hand-overs, so that nobody in between can
        read them. Real hospitals insist on it.
    start_timeout
        Seconds to wait at the start until every member is connected.
    route_seed, training_seed
        The two secrets: routes stay with the coordinator, training streams go to the hospitals.
        Drawn at random unless given.
    experiment
        Its id; drawn at random unless given.
    journal
        Where the experiment's state is kept. One that is on disk lets a killed run go on: `start`
        on a new FedDC with the same settings, secrets, id and journal resumes it.
    newest_roster
        Looks up the study's roster; a newer one than the experiment's opens a new generation after
        the next aggregation, with the members that have pinned it.
    bell
        Tells when hospitals may have answered, where something knows; otherwise they are asked.
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
        quorum_wait: float = 0.0,
        sealed: bool = True,
        start_timeout: float = 120.0,
        route_seed: bytes | None = None,
        training_seed: bytes | None = None,
        experiment: str | None = None,
        journal: Journal | None = None,
        newest_roster: Callable[[], Roster | None] = lambda: None,
        bell: ReplyNotifier | None = None,
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
        self.quorum_wait = quorum_wait
        self.sealed = sealed
        self.start_timeout = start_timeout
        self.route_seed = route_seed or secrets.token_bytes(SEED_BYTES)
        self.training_seed = training_seed or secrets.token_bytes(SEED_BYTES)
        self.experiment = experiment or secrets.token_hex(8)
        self.journal = journal or Journal()
        self.newest_roster = newest_roster
        self.bell = bell or ReplyNotifier()
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
        config = ConfigRecord(dict(train_config or {}))
        self.summary()

        # Set-up: learn who takes part, and have everyone agree to all settings at once.
        course = begin(self, grid, wrapped, config, legs, timeout)
        planner = course.planner

        result = Result()
        for leg in legs[course.legs_done :]:
            # A new roster, if there is one: between an aggregation and the next leg.
            renew(self, leg, course, timeout)
            members = course.members
            log(INFO, "[leg %d/%d] ends in %s", leg.number, len(legs), leg.ending)
            started = time.monotonic()
            # The plan: who trains which model, and where it goes then. On disk before it is sent.
            plan = plan_leg(self, leg, course, config)
            # Locally, at every hospital drawn: train, and send the model.
            answers = ask(self, plan, course, timeout)

            weights: dict[str, float] = {}
            if leg.ending is Ending.HAND_OVER:
                # Daisy chaining: model i waits for hospital π(i), which the plan has drawn.
                planner.handed_over(
                    plan,
                    {
                        h: Carried(answers.models[h], reply.leg)
                        for h, reply in answers.trained.items()
                    },
                    declined=answers.declined,
                    broken=answers.broken,
                )
            else:
                # Aggregation: all who were drawn go on from the aggregate.
                models = contributions(self, plan, answers, course)
                aggregate, metrics = wrapped.aggregate(list(models.values()))
                planner.aggregated(plan, models, course.keep(aggregate, leg))
                weights = {members.names[h]: model.weight for h, model in models.items()}
                result.train_metrics_clientapp[leg.number] = metrics
                self.observer.aggregated(leg, aggregate)
                record = to_record(aggregate)
                if evaluate_fn and (figures := evaluate_fn(leg.number, record)):
                    result.evaluate_metrics_serverapp[leg.number] = figures
            course.leg_ended(leg)
            self.observer.leg_ended(
                LegReport(
                    leg=leg,
                    asked=_names(members, plan.drawn),
                    answers=answers.in_order(members),
                    missing={members.names[h]: why for h, why in answers.missing.items()},
                    parked=_names(members, planner.parked),
                    seconds=time.monotonic() - started,
                    lost_chains=planner.lost_chains,
                    missed_rounds=planner.missed_rounds,
                    weights=weights,
                )
            )

        course.write(self.observer.to_state)  # so that a resumed run delivers the same model
        result.arrays = to_record(wrapped.model)
        final = wrapped.model.to_bytes(wire=course.wire)
        self.observer.closed(deliver(course.members, self.experiment, final, timeout=timeout))
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


def _names(members: Members, positions: Iterable[int]) -> tuple[str, ...]:
    return tuple(members.names[position] for position in positions)
