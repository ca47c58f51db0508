"""A sealed experiment under way: what `FedDC.start` does at each step of its loop.

A leg is planned once. The plan and the exact bytes of its requests are on disk before the first one
is sent, so that a resumed run sends the same bytes and arrives at the same model.
"""

import math
from functools import partial
from logging import INFO, WARNING

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from operation.flower.logger import log
from protocol.descriptor import Descriptor
from protocol.messages import Carries, Close, Refusal, RefusalCode, Trained
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg, schedule_seed
from protocol.secure_sum.total import LastAggregate
from strategies.identifiers import HospitalName, Position, cohort_node
from strategies.routing.planner import Assignment, ModelRef, Plan, Planner, cohort_size
from strategies.settings import FedDCSettings
from strategies.wrapped.adapter import Contribution, Wrapped
from strategies.wrapped.requirements import check_wrapped, least_hospitals, least_models

from .agreement.connect import connect_members
from .agreement.generation_change import GenerationChange
from .agreement.set_up import check_examples, close_experiment, make_descriptor, set_up
from .answers import Expected, LegAnswers, absent
from .exchange import Answer
from .generation import Generation
from .members import Members
from .observer import LegReport
from .quorum import ExperimentFailed, QuorumPause, quorum_problem
from .sealed_study import SealedStudy
from .secure.closing_figures import ClosingFigures
from .secure.secure_average import SecureAverages, check_secure
from .signed_request import SignedRequest, sign_assignment
from .storage.journal import JournalError, State
from .storage.snapshot import Snapshot
from .storage.spool import StoredModel

_FIRST_MODEL, _FINAL_MODEL = "first", "final"
_OWES_HAND_OVER = "has not answered an earlier leg"


class Session:
    """One experiment with a study's hospitals, started or resumed.

    `legs_done` legs are complete; `wrapped.model` is the current aggregate.
    """

    def __init__(
        self,
        settings: FedDCSettings,
        study: SealedStudy,
        wrapped: Wrapped,
        legs: tuple[Leg, ...],
        config: ConfigRecord,
        timeout: float,
    ) -> None:
        self.legs_done = 0
        self._settings, self._study, self._wrapped = settings, study, wrapped
        self._legs, self._config, self._timeout = legs, config, timeout
        # Set-up has no training to wait for, but everyone must be there.
        self._set_up_timeout = max(timeout, study.start_timeout)
        self._spool = study.journal.spool
        self._last_aggregation = 0
        self._planned_cohort: frozenset[Position] | None = None
        self._signed: dict[Position, SignedRequest] = {}
        self._saved_aggregation: int | None = None  # the last one whose arrays are in the spool
        self._averages = SecureAverages(self._spool)
        self._closing: ClosingFigures | None = None
        self._saved_closing: State | None = None  # of a run that is resumed
        self._leg_started = 0.0
        self._change = GenerationChange(study, settings.weighting, self._set_up_timeout)
        # Set by `start_or_resume`:
        self._agreed: ConfigRecord
        self._generation: Generation
        self._planner: Planner

    # --- before the first leg ---------------------------------------------------------------------

    def start_or_resume(self, grid: Grid) -> None:
        """Set the experiment up with all members, or continue the one in the journal."""
        study = self._study
        if study.journal.is_kept:
            self._wrapped.check_savable()
        state = study.journal.load()
        if state is None or "planner" not in state:
            self._start(grid, agreed=None if state is None else state["descriptor"])
        else:
            self._resume(grid, Snapshot.from_state(state, self._spool))

    def _start(self, grid: Grid, *, agreed: str | None) -> None:
        """Start an experiment; `agreed` is the descriptor of one that was killed in set-up."""
        study = self._study
        members = connect_members(grid, study, study.roster, timeout=self._set_up_timeout)
        descriptor = self._join(members)
        if agreed is None:
            # The hospitals remember what they agreed to: a resumed run must ask for the same.
            saved = {"descriptor": descriptor.to_bytes().hex()}
            study.journal.write(lambda: saved, ())
        else:
            descriptor = _same(Descriptor.from_bytes(bytes.fromhex(agreed)), descriptor)
        weighting, timeout = self._settings.weighting, self._set_up_timeout
        self._generation = set_up(members, descriptor, study, weighting, timeout=timeout)
        if descriptor.first_model_is_given:
            first = self._wrapped.model.to_bytes(wire=self._generation.wire)
            self._spool.put(_FIRST_MODEL, first)
        study.observer.publishing(self._generation.publishing)
        study.observer.started(study.experiment, self._generation.examples, len(self._legs))

    def _resume(self, grid: Grid, saved: Snapshot) -> None:
        members = connect_members(
            grid,
            self._study,
            saved.roster,
            timeout=self._set_up_timeout,
            names=saved.members,
            everyone=False,
        )
        descriptor = _same(saved.descriptor, self._join(members))
        self._generation = Generation(members, descriptor, saved.examples, saved.generation)
        self._restore(saved)
        if not self._generation.is_secure:
            check_examples(saved.examples, self._settings.weighting)
        log(INFO, "Resuming after leg %d", self.legs_done)

    def _join(self, members: Members) -> Descriptor:
        """Check that the strategy suits the members; make the planner, return the descriptor."""
        settings, study, wrapped = self._settings, self._study, self._wrapped
        check_wrapped(
            wrapped.strategy,
            parameters=wrapped.model.trainable_numbers,
            cohort=cohort_size(len(members), settings.fraction),
            chained=settings.is_chained,
        )
        if study.averaging == "secure":
            check_secure(settings, wrapped.strategy, len(members), study.minimum_cohort)
        nodes = [cohort_node(hospital) for hospital in members.positions]
        self._agreed = wrapped.configure(nodes, self._config, members.grid)
        rounds = self._legs[-1].last_round + 1
        descriptor = make_descriptor(
            settings, study, rounds, self._agreed, wrapped.model, wrapped.strategy
        )
        given = (Carries.AGGREGATE, ModelRef(_FIRST_MODEL))
        sends_sums = Generation(members, descriptor, {}, b"").sends_sums
        self._planner = Planner(
            hospitals=len(members),
            last_leg=self._legs[-1].number,
            start=given if descriptor.first_model_is_given else (Carries.NOTHING, ModelRef("")),
            permutation=settings.permutation,
            fraction=settings.fraction,
            route_seed=study.route_seed,
            aggregates_as=Carries.SUM if sends_sums else Carries.AGGREGATE,
        )
        return descriptor

    @property
    def _members(self) -> Members:
        return self._generation.members

    # --- between an aggregation and the next leg --------------------------------------------------

    def open_generation(self, leg: Leg) -> None:
        """If the roster has changed, continue with its members, who make new keys.

        Only between an aggregation and the next leg: chains are sealed with a generation's keys.
        """
        if not 0 < self.legs_done == self._last_aggregation or self._planned_cohort is not None:
            return
        change, last = self._change, _aggregate_name(self._last_aggregation)
        if change.next is None:
            if not change.begin(self._generation):
                return
            self.save()  # a resumed run must ask the same hospitals
        if self._generation.sends_sums:
            # Old members check the sum while they have the keys to do so.
            total = self._spool.get(last)
            self._averages.collect_vouchers(self._generation, total, self._set_up_timeout)
            self.save()
        self._generation = change.open(self._generation)
        self._planner.open_generation(len(self._members), leg.first_round, ModelRef(last))
        self._signed.clear()
        number = self._members.roster.generation
        log(INFO, "Generation %d: %s", number, ", ".join(self._members.names))
        self._study.observer.publishing(self._generation.publishing)
        self._study.observer.generation_began(number, self._generation.examples, change.staying_out)

    # --- a leg ------------------------------------------------------------------------------------

    def plan(self, leg: Leg) -> Plan:
        """Plan a leg and save it with its signed requests; wait while too few are connected."""
        log(INFO, "[leg %d/%d] ends in %s", leg.number, len(self._legs), leg.ending)
        self._leg_started = self._study.clock.now()
        if self._planned_cohort is not None:
            # Planned, and perhaps sent, by the run that is resumed.
            plan = self._planner.plan(leg, self._planned_cohort)
        else:
            plan = self._plan_with_quorum(leg)
            for assignment in plan.assignments:
                if assignment.leg == leg.number:  # a parked request is sent again, byte for byte
                    self._signed[assignment.hospital] = sign_assignment(
                        assignment,
                        self._members,
                        self._study.experiment,
                        self._spool,
                        cohort=self._averages.cohort(plan, self._generation),
                        vouchers=self._averages.vouchers,
                    )
        model = self._wrapped.model
        self._averages.begin(plan, self._generation, model, self._last_aggregate)
        nodes = [cohort_node(hospital) for hospital in plan.cohort]
        if self._wrapped.configure(nodes, self._config, self._members.grid) != self._agreed:
            raise ValueError(
                f"{type(self._wrapped.strategy).__name__} changed its config in leg {leg.number}, "
                "but hospitals agree to an experiment's settings once, before it starts"
            )
        self.save()
        return plan

    def _last_aggregate(self) -> LastAggregate:
        """Return the last aggregate as hospitals name it to each other."""
        leg = self._last_aggregation
        return (
            LastAggregate.of(leg, self._spool.get(_aggregate_name(leg))) if leg else LastAggregate()
        )

    def _plan_with_quorum(self, leg: Leg) -> Plan:
        quorum = self._study.quorum
        least = max(self._least_models(leg), least_hospitals(self._wrapped.strategy))
        pause = self._pause(leg)
        while True:
            present = frozenset(self._members.present())
            plan = self._planner.plan(leg, present)
            missing = absent(plan)
            problem = quorum_problem(plan, self._members, missing, quorum=quorum, least=least)
            if not problem:
                self._planned_cohort = present
                return plan
            pause.wait(problem)

    def collect(self, plan: Plan) -> LegAnswers:
        """Send a plan's requests and accept the answers; wait while they are too few."""
        members, timeout = self._members, self._timeout
        generation, secure_sum = self._generation, self._averages.under_way
        expected = Expected(
            self._wrapped.model,
            generation.wire,
            generation.descriptor.sealed,
            names_aggregate=generation.is_secure,
        )
        answers = LegAnswers(plan, members, expected, self._spool, secure_sum)
        if secure_sum is not None and secure_sum.survivors:
            answers.restore(secure_sum.survivors)  # resumed after the first trip
            return answers
        # An aggregation does not ask for parked hand-overs, but reports who owes one.
        asked = {assignment.hospital for assignment in plan.assignments}
        owing = set(self._planner.parked) & set(plan.cohort) - asked
        answers.missing |= dict.fromkeys(owing, _OWES_HAND_OVER)
        quorum, least = self._study.quorum, self._least_models(plan.leg)

        def problem() -> str:
            return quorum_problem(plan, members, answers.missing, quorum=quorum, least=least)

        def report(hospitals: list[HospitalName], seconds: float) -> None:
            who = ", ".join(hospitals)
            log(WARNING, "leg %d: waiting for %s since %.0f s", plan.leg.number, who, seconds)
            self._study.observer.unanswered(plan.leg, hospitals, seconds)

        pause = self._pause(plan.leg)
        requests = {members.names[h]: self._signed[h] for h in sorted(asked)}
        while True:
            group = f"leg-{plan.leg.number}"
            for name, answer in members.ask(
                requests,
                timeout=timeout,
                group=group,
                enough=lambda: not problem(),
                on_unanswered=report,
            ):
                answers.accept(name, answer)
            if not problem():
                break
            if answers.ahead_of_journal:
                raise ExperimentFailed(
                    f"{problem()}; they have answered later legs than this journal knows of, as "
                    "after a backup: it can't be resumed, but a new experiment can start from its "
                    "last aggregate"
                )
            pause.wait(problem())
            timeout = min(timeout, pause.seconds_left)
            missing = {members.names[hospital] for hospital in answers.missing}
            requests = {name: request for name, request in requests.items() if name in missing}
            members.present()
        if answers.missing:
            who = members.with_reasons(answers.missing)
            log(WARNING, "leg %d: missing %s", plan.leg.number, who)
        if secure_sum is not None:
            secure_sum.fix_survivors()
            self.save()
        return answers

    def hand_over(self, plan: Plan, answers: LegAnswers) -> None:
        """Queue each trained model for the recipient that the plan has drawn."""
        self._planner.handed_over(
            plan, answers.models, declined=answers.declined, broken=answers.broken
        )

    def contributions(self, plan: Plan, answers: LegAnswers) -> dict[Position, Contribution]:
        """Return the models to aggregate, in roster order, with their weights.

        Of a secure sum this is one, the mean.
        """
        if self._averages.under_way is not None:
            first = min(answers.trained)  # the strategy needs an address; any survivor's will do
            pause = partial(self._pause, plan.leg)
            return {first: self._averages.contribution(first, self.save, pause, self._timeout)}
        found: dict[Position, Contribution] = {}
        for assignment in plan.assignments:
            hospital = assignment.hospital
            reply = answers.trained.get(hospital)
            if not isinstance(reply, Trained):
                continue
            name, wire = answers.models[hospital].name, self._generation.wire
            model = StoredModel(self._spool, name, wire)
            self._study.observer.received(plan.leg, self._members.names[hospital], model)
            found[hospital] = Contribution(
                node=cohort_node(hospital),
                model=model,
                weight=self._weight(assignment),
                loss=math.nan if reply.loss is None else reply.loss,
                accuracy=math.nan if reply.accuracy is None else reply.accuracy,
            )
        return found

    def _weight(self, assignment: Assignment) -> float:
        weighting = self._settings.weighting
        if weighting == "equal":
            return 1.0
        visited = {assignment.hospital}
        if weighting == "chain-examples":
            visited |= set(assignment.queued.chain.visits)
        examples = self._generation.examples
        return float(sum(examples[self._members.names[h]] or 0 for h in visited))

    def store_aggregate(self, plan: Plan, answers: LegAnswers, aggregate: ModelState) -> None:
        """Queue the aggregate for every hospital that was drawn."""
        self._last_aggregation = plan.leg.number
        stored = ModelRef(_aggregate_name(plan.leg.number))
        total, generation = self._averages.end(), self._generation
        data = total if generation.sends_sums else aggregate.to_bytes(wire=generation.wire)
        self._spool.put(stored.name, data)
        self._planner.aggregated(plan, answers.trained, stored)
        self._study.observer.aggregated(plan.leg, aggregate)

    def end_leg(
        self, plan: Plan, answers: LegAnswers, models: dict[Position, Contribution]
    ) -> None:
        """Account for the end of a leg and report it; `models` are those that were aggregated."""
        names, planner = self._members.names, self._planner
        self.legs_done, self._planned_cohort = plan.leg.number, None
        self._signed = {hospital: self._signed[hospital] for hospital in planner.parked}
        self._study.observer.leg_ended(
            LegReport(
                leg=plan.leg,
                asked=tuple(names[hospital] for hospital in plan.drawn),
                answers=answers.by_name,
                missing={names[hospital]: why for hospital, why in answers.missing.items()},
                parked=tuple(names[hospital] for hospital in planner.parked),
                seconds=self._study.clock.now() - self._leg_started,
                lost_chains=planner.lost_chains,
                missed_rounds=planner.missed_rounds,
                weights=self._weights(answers, models),
                figures=self._averages.figures,
                routes=tuple(
                    (
                        assignment.queued.chain.number,
                        names[assignment.hospital],
                        None if assignment.recipient is None else names[assignment.recipient],
                    )
                    for assignment in plan.assignments
                    if assignment.hospital in answers.trained
                ),
            )
        )
        self._averages.figures = {}

    def _weights(
        self, answers: LegAnswers, models: dict[Position, Contribution]
    ) -> dict[str, float]:
        """Return each hospital's weight in the aggregate, unless it stays secret."""
        names = self._members.names
        if not self._generation.is_secure or not models:
            return {names[hospital]: model.weight for hospital, model in models.items()}
        is_secret = self._generation.descriptor.weighted
        return {} if is_secret else {names[h]: 1.0 for h in answers.trained}

    def close(self) -> None:
        """Deliver the final model to every member; the keys are destroyed there."""
        generation = self._generation
        if generation.sends_sums:
            final = self._spool.get(_aggregate_name(self._last_aggregation))
        else:
            final = self._wrapped.model.to_bytes(wire=generation.wire)
        if generation.is_secure:
            self._closing = ClosingFigures(
                generation,
                self._spool,
                model=_FINAL_MODEL,
                final=LastAggregate.of(self._legs[-1].number, final),
                saved=self._saved_closing,
            )
        self.save()  # so that a resumed run delivers the same model
        self._spool.put(_FINAL_MODEL, final)
        totals = None
        if self._closing is not None:
            # Nobody waits for figures: without a quorum there are none.
            pause = QuorumPause(self._legs[-1], 0.0, self._study.observer, self._study.clock)
            totals = self._closing.collect(self.save, pause, self._timeout)
        is_random = generation.descriptor.schedule_commitment is not None
        seed = schedule_seed(self._study.route_seed).hex() if is_random else None
        request = Close(experiment=self._study.experiment, schedule_seed=seed)
        answers = close_experiment(
            self._members, request, self._spool, _FINAL_MODEL, timeout=self._timeout
        )
        full = [name for name, answer in answers.items() if _has_no_space(answer)]
        if full:
            raise ExperimentFailed(
                f"the final model does not fit on the disk at {', '.join(full)}: when there is "
                "space, `feddc coordinator resume` delivers it again"
            )
        self._study.observer.closed(answers, totals)

    # --- saved state ------------------------------------------------------------------------------

    def save(self) -> None:
        """Persist the state; models that are no longer needed are dropped."""
        last = self._last_aggregation
        models = {model.name for model in self._planner.models()}
        if last and (self._change.next or self._generation.is_secure):
            models |= {_aggregate_name(last)}
        models |= self._averages.stored
        if self._closing is not None:
            models |= self._closing.stored
        kept = {*models, f"current-{last}", f"strategy-{last}"}
        self._study.journal.write(lambda: self._snapshot().to_state(), kept)

    def _snapshot(self) -> Snapshot:
        numbers, model, arrays = self._wrapped.to_state()
        last = self._last_aggregation
        if self._saved_aggregation != last:
            self._spool.put(f"current-{last}", model.to_bytes())
            self._spool.put(f"strategy-{last}", ModelState(arrays).to_bytes())
            self._saved_aggregation = last
        return Snapshot(
            descriptor=self._generation.descriptor,
            roster=self._members.roster,
            members=self._members.names,
            next_generation=self._change.next,
            examples=self._generation.examples,
            generation=self._generation.digest,
            secure_sum=self._averages.to_state(),
            closing=None if self._closing is None else self._closing.to_state(),
            vouchers=self._averages.vouchers,
            heads=self._members.heads,
            legs_done=self.legs_done,
            last_aggregation=last,
            planned_cohort=self._planned_cohort,
            signed=self._signed,
            planner=self._planner.to_state(),
            wrapped=numbers,
            observer=self._study.observer.to_state(),
        )

    def _restore(self, saved: Snapshot) -> None:
        last = saved.last_aggregation
        self._wrapped.restore(
            saved.wrapped,
            ModelState.from_bytes(self._spool.get(f"current-{last}")),
            ModelState.from_bytes(self._spool.get(f"strategy-{last}")).parameters,
        )
        self._planner.restore(saved.planner)
        self._members.heads |= saved.heads
        self._averages.restore(saved.secure_sum, saved.vouchers)
        self._saved_closing = saved.closing
        self.legs_done = saved.legs_done
        self._last_aggregation = self._saved_aggregation = last
        self._change.next = saved.next_generation
        self._planned_cohort = saved.planned_cohort
        self._signed = dict(saved.signed)
        self._study.observer.restore(saved.observer)

    # ----------------------------------------------------------------------------------------------

    def _pause(self, leg: Leg) -> QuorumPause:
        study = self._study
        return QuorumPause(leg, study.quorum_wait, study.observer, study.clock)

    def _least_models(self, leg: Leg) -> int:
        if leg.ending is Ending.HAND_OVER:
            return 1
        if self._generation.is_secure:
            return self._generation.threshold
        return least_models(self._wrapped.strategy, self._wrapped.model.trainable_numbers)


def _has_no_space(answer: Answer) -> bool:
    return isinstance(answer.reply, Refusal) and answer.reply.code is RefusalCode.DISK_FULL


def _aggregate_name(leg: int) -> str:
    return f"aggregate-{leg}"


def _same(agreed: Descriptor, descriptor: Descriptor) -> Descriptor:
    """Return what hospitals agreed to; refuse to continue an experiment with other settings."""
    if agreed != descriptor.model_copy(update={"roster": agreed.roster}):
        raise JournalError(
            f"experiment {agreed.experiment} began with other settings, to which the hospitals "
            "agreed: start a new one"
        )
    return agreed
