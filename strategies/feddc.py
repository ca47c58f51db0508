"""Federated daisy-chaining (Kamp, Fischer, Vreeken, ICLR 2023) around any Flower strategy."""

import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from logging import INFO, WARNING
from typing import Any, Literal, get_args

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from protocol.descriptor import Descriptor, Init, Scalar
from protocol.keys import Identity
from protocol.messages import Carries
from protocol.model_bytes import ModelState
from protocol.randomness import SEED_BYTES
from protocol.roster import Roster

from .answers import Expected, LegAnswers, absent, quorum_problem, with_reasons
from .bell import Bell
from .course import Carried, Course, agreed_wire, read_descriptor
from .journal import Journal
from .members import ExperimentFailed, Members, Pause, meet
from .permutation import Permutation
from .planner import Plan, Planner, cohort_size
from .records import to_model, to_record, trainable_numbers
from .report import LegReport, Observer
from .schedule import Ending, Leg, Schedule
from .set_up import deliver, set_up, who_agrees
from .spool import StoredModel
from .wrapped import Contribution, Wrapped, check_wrapped, least_hospitals, least_models

Weighting = Literal["equal", "examples", "chain-examples"]
_FIRST_MODEL = "first"


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
        Looks up the study's roster; a newer one than the experiment's opens a new epoch after the
        next aggregation, with whoever has pinned it.
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
        bell: Bell | None = None,
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
        self.bell = bell or Bell()
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
        course = self._begin(grid, wrapped, config, legs, timeout)
        planner = course.planner

        result = Result()
        for leg in legs[course.legs_done :]:
            # A new roster, if there is one: between an aggregation and the next leg.
            self._renew(leg, course, timeout)
            members = course.members
            log(INFO, "[leg %d/%d] ends in %s", leg.number, len(legs), leg.ending)
            started = time.monotonic()
            # The plan: who trains which model, and where it goes then. On disk before it is sent.
            plan = self._plan(leg, course, config)
            # Locally, at every hospital drawn: train, and send the model.
            answers = self._ask(plan, course, timeout)

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
                models = self._contributions(plan, answers, course)
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

    def _begin(
        self,
        grid: Grid,
        wrapped: Wrapped,
        config: ConfigRecord,
        legs: tuple[Leg, ...],
        timeout: float,
    ) -> Course:
        """Set an experiment up, or take up the one that the journal tells of."""
        if self.journal.is_kept:
            wrapped.check_savable()
        state = self.journal.load()
        begun = state is not None and "planner" in state
        roster, names = self.roster, ()
        if state is not None and begun:  # the roster of the epoch it was in
            roster = Roster.from_content(bytes.fromhex(state["roster"]))
            names = tuple(state["members"])
        members = meet(
            grid,
            roster,
            self.coordinator,
            patience=self.start_timeout,
            timeout=timeout,
            names=names,
            everyone=not begun,
            bell=self.bell,
            batch=self.journal.batch,
        )
        self._check(members, wrapped)
        agreed = wrapped.configure([_node(h) for h in range(len(members))], config, grid)
        descriptor = self._descriptor(legs[-1].last_round + 1, agreed)
        wire = agreed_wire(descriptor)
        if state is not None:
            descriptor = read_descriptor(state, descriptor)
        else:
            # The hospitals remember what they agreed to: whoever resumes must ask for the same.
            note = {"descriptor": descriptor.to_bytes().hex()}
            self.journal.write(lambda: note, ())
        examples = (
            state["examples"] if state and begun else set_up(members, descriptor, timeout=timeout)
        )
        self._check_examples(examples)
        planner = self._planner(members, legs[-1].number)
        course = Course(self.journal, members, descriptor, agreed, examples, planner, wrapped)
        if state is not None and begun:
            course.restore(state)
            self.observer.restore(state["observer"])
            log(INFO, "Going on after leg %d", course.legs_done)
        else:
            self.journal.spool.put(_FIRST_MODEL, wrapped.model.to_bytes(wire=wire))
            self.observer.started(self.experiment, examples, len(legs))
        return course

    def _renew(self, leg: Leg, course: Course, timeout: float) -> None:
        """Open a new epoch if the roster has changed: everybody makes new keys, some stay out."""
        if not 0 < course.legs_done == course.last_aggregation or course.present is not None:
            return  # chains are on their way under the keys of this epoch
        staying_out: dict[str, str] = {}
        if course.next_epoch is None:
            roster = self.newest_roster()
            if roster is None or roster.epoch <= course.members.roster.epoch:
                return
            everybody = course.members.of(roster)
            everybody.present()
            descriptor = course.descriptor.model_copy(update={"roster": roster.digest})
            answers = who_agrees(everybody, descriptor, timeout=timeout)
            staying_out = {name: why for name, why in answers.items() if why}
            names = tuple(name for name in roster.names if not answers[name])
            needed = max(2, math.ceil(self.quorum * len(roster.names)))
            if len(names) < needed:
                log(
                    WARNING,
                    "epoch %d can't begin, %d of %d have agreed and %d are needed: %s",
                    roster.epoch,
                    len(names),
                    len(roster.names),
                    needed,
                    "; ".join(f"{name}: {why}" for name, why in staying_out.items()),
                )
                return
            course.next_epoch = (roster, names)
            course.write(self.observer.to_state)  # whoever resumes must ask the same hospitals
        roster, names = course.next_epoch
        members = course.members.of(roster, names)
        members.present()
        descriptor = course.descriptor.model_copy(update={"roster": roster.digest})
        examples = set_up(members, descriptor, timeout=timeout)
        self._check_examples(examples)
        course.begin_epoch(members, descriptor, examples, leg.first_round)
        log(INFO, "Epoch %d: %s", roster.epoch, ", ".join(names))
        self.observer.epoch_began(roster.epoch, examples, staying_out)

    def _plan(self, leg: Leg, course: Course, config: ConfigRecord) -> Plan[Carried]:
        """Plan a leg, and write it down; wait if too few hospitals are there."""
        members, wrapped = course.members, course.wrapped
        planned = course.present
        if planned is not None:
            plan = course.planner.plan(leg, planned)  # by the run that is resumed, and perhaps sent
        else:
            least = max(self._least_models(leg, wrapped.model), least_hospitals(self.strategy))
            pause = self._pause(leg)
            while True:
                present = members.present()
                plan = course.planner.plan(leg, present)
                problem = quorum_problem(
                    plan, members, absent(plan), quorum=self.quorum, least=least
                )
                if not problem:
                    break
                pause.wait(problem)
            plan = course.plan(leg, present)
        nodes = [_node(hospital) for hospital in plan.cohort]
        if wrapped.configure(nodes, config, members.grid) != course.agreed:
            raise ValueError(
                f"{type(self.strategy).__name__} changed its config in leg {leg.number}, but "
                "hospitals agree to an experiment's settings once, before it starts"
            )
        course.write(self.observer.to_state)
        return plan

    def _ask(self, plan: Plan[Carried], course: Course, timeout: float) -> LegAnswers:
        """Send a plan's requests and take in the answers; wait if they are too few."""
        members = course.members
        expected = Expected(course.wrapped.model, course.wire, course.descriptor.sealed)
        answers = LegAnswers(plan, members, expected, course.journal.spool)
        least = self._least_models(plan.leg, course.wrapped.model)

        def problem() -> str:
            return quorum_problem(plan, members, answers.missing, quorum=self.quorum, least=least)

        pause = self._pause(plan.leg)
        requests = course.requests(plan)
        while True:
            members.ask(
                requests,
                timeout=timeout,
                group=f"leg-{plan.leg.number}",
                intake=answers.take,
                enough=lambda: not problem(),
            )
            if not problem():
                break
            pause.wait(problem())
            timeout = min(timeout, pause.left)
            missing = {members.names[hospital] for hospital in answers.missing}
            requests = {name: request for name, request in requests.items() if name in missing}
            members.present()
        if answers.missing:
            who = with_reasons(members, answers.missing)
            log(WARNING, "leg %d: missing %s", plan.leg.number, who)
        return answers

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

    def _pause(self, leg: Leg) -> Pause:
        def tell(problem: str) -> None:
            log(WARNING, "waiting up to %g s: %s", self.quorum_wait, problem)
            self.observer.waiting(leg, problem)

        return Pause(self.quorum_wait, tell)

    def _check(self, members: Members, wrapped: Wrapped) -> None:
        check_wrapped(
            self.strategy,
            parameters=trainable_numbers(wrapped.model),
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
            experiment=self.experiment,
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

    def _planner(self, members: Members, last_leg: int) -> Planner[Carried]:
        shared = (Carries.AGGREGATE, Carried(_FIRST_MODEL))
        return Planner(
            hospitals=len(members),
            last_leg=last_leg,
            start=shared if self.init == "shared" else (Carries.NOTHING, Carried("")),
            permutation=self.permutation,
            fraction=self.fraction,
            route_seed=self.route_seed,
        )

    def _least_models(self, leg: Leg, model: ModelState) -> int:
        if leg.ending is Ending.HAND_OVER:
            return 1
        return least_models(self.strategy, trainable_numbers(model))

    def _contributions(
        self, plan: Plan[Carried], answers: LegAnswers, course: Course
    ) -> dict[int, Contribution]:
        """Return the models to aggregate, in roster order, with their weights."""
        contributions = {}
        names = course.members.names
        for task in plan.tasks:
            hospital = task.hospital
            reply = answers.trained.get(hospital)
            if reply is None:
                continue
            model = StoredModel(course.journal.spool, answers.models[hospital], course.wire)
            self.observer.received(plan.leg, names[hospital], model)
            visited = {hospital}
            if self.weighting == "chain-examples":
                visited |= set(task.parcel.chain.visits)
            weight = sum(course.examples[names[each]] or 0 for each in visited)
            contributions[hospital] = Contribution(
                node=_node(hospital),
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


def _node(hospital: int) -> int:
    """Return by what number the wrapped strategy knows a hospital, whatever Flower's node is."""
    return hospital + 1  # 0 would be nobody


def _names(members: Members, positions: Iterable[int]) -> tuple[str, ...]:
    return tuple(members.names[position] for position in positions)
