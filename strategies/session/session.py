"""A sealed experiment under way: what `FedDC.start` does at each step of its loop.

A leg is planned once. The plan and the exact bytes of its requests are on disk before the first one
is sent, so that a resumed run sends the same bytes and arrives at the same model.
"""

from functools import partial
from logging import INFO

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from operation.flower.logger import log
from protocol.descriptor import Descriptor
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg
from protocol.secure_sum.total import LastAggregate
from strategies.identifiers import Position, cohort_node
from strategies.routing.planner import ModelRef, Plan, Planner
from strategies.settings import FedDCSettings
from strategies.wrapped.adapter import Contribution, Wrapped
from strategies.wrapped.requirements import least_hospitals, least_models

from .agreement.connect import connect_members
from .agreement.generation_change import GenerationChange
from .agreement.preparation import FIRST_MODEL, check_same, prepare
from .agreement.set_up import check_examples, set_up
from .answers import Expected, LegAnswers, absent
from .closing import Closing
from .generation import Generation
from .leg_result import leg_report, received_models
from .members import Members
from .quorum import QuorumPause, quorum_problem
from .sealed_study import SealedStudy
from .secure.secure_average import SecureAverages
from .signed_request import SignedRequest, sign_assignment
from .storage.snapshot import Snapshot

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
        self._closing = Closing(study, timeout)
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
        descriptor = self._prepare(members)
        if agreed is None:
            # The hospitals remember what they agreed to: a resumed run must ask for the same.
            saved = {"descriptor": descriptor.to_bytes().hex()}
            study.journal.write(lambda: saved, ())
        else:
            descriptor = check_same(Descriptor.from_bytes(bytes.fromhex(agreed)), descriptor)
        weighting, timeout = self._settings.weighting, self._set_up_timeout
        self._generation = set_up(members, descriptor, study, weighting, timeout=timeout)
        if descriptor.first_model_is_given:
            first = self._wrapped.model.to_bytes(wire=self._generation.wire)
            self._spool.put(FIRST_MODEL, first)
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
        descriptor = check_same(saved.descriptor, self._prepare(members))
        self._generation = Generation(members, descriptor, saved.examples, saved.generation)
        self._restore(saved)
        if not self._generation.is_secure:
            check_examples(saved.examples, self._settings.weighting)
        log(INFO, "Resuming after leg %d", self.legs_done)

    def _prepare(self, members: Members) -> Descriptor:
        """Make the planner; return the descriptor."""
        prepared = prepare(
            self._settings, self._study, self._wrapped, self._legs, self._config, members
        )
        self._agreed, self._planner = prepared.config, prepared.planner
        return prepared.descriptor

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
        members = self._members
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
        requests = {members.names[hospital]: self._signed[hospital] for hospital in sorted(asked)}
        least = self._least_models(plan.leg)
        answers.collect(requests, self._study, least=least, timeout=self._timeout)
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
        weighting = self._settings.weighting
        return received_models(plan, answers, self._generation, self._study, weighting)

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
        self.legs_done, self._planned_cohort = plan.leg.number, None
        self._signed = {hospital: self._signed[hospital] for hospital in self._planner.parked}
        report = leg_report(
            plan,
            answers,
            models,
            self._generation,
            self._planner,
            seconds=self._study.clock.now() - self._leg_started,
            figures=self._averages.figures,
        )
        self._study.observer.leg_ended(report)
        self._averages.figures = {}

    def close(self) -> None:
        """Deliver the final model to every member; the keys are destroyed there."""
        generation = self._generation
        if generation.sends_sums:
            final = self._spool.get(_aggregate_name(self._last_aggregation))
        else:
            final = self._wrapped.model.to_bytes(wire=generation.wire)
        self._closing.deliver(final, generation, self._legs[-1], self.save)

    # --- saved state ------------------------------------------------------------------------------

    def save(self) -> None:
        """Persist the state; models that are no longer needed are dropped."""
        last = self._last_aggregation
        models = {model.name for model in self._planner.models()}
        if last and (self._change.next or self._generation.is_secure):
            models |= {_aggregate_name(last)}
        models |= self._averages.stored | self._closing.stored
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
            closing=self._closing.to_state(),
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
        self._closing.restore(saved.closing)
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


def _aggregate_name(leg: int) -> str:
    return f"aggregate-{leg}"
