"""A sealed experiment under way: what `FedDC.start` does at each step of its loop.

A leg is planned once. The plan and the exact bytes of its requests are on disk before the first one
is sent, so that a resumed run sends the same bytes and arrives at the same model.
"""

import math
from collections.abc import Mapping
from logging import INFO, WARNING

from flwr.app import ConfigRecord
from flwr.serverapp import Grid

from operation.flower.logger import log
from protocol.approval import approval_fingerprint
from protocol.descriptor import Descriptor
from protocol.messages import Carries, Close, Refusal, RefusalCode, Trained, Vouch, Vouched
from protocol.model_bytes import ModelState, Wire
from protocol.model_size import layout_of
from protocol.schedule import Ending, Leg, schedule_seed
from protocol.secure_sum.secure_leg import SecureLeg, threshold
from protocol.secure_sum.total import LastAggregate
from protocol.secure_sum.vector import Mean, VectorForm
from strategies.identifiers import HospitalName, Position, cohort_node
from strategies.routing.planner import Assignment, ModelRef, Plan, Planner, cohort_size
from strategies.settings import FedDCSettings
from strategies.wrapped.adapter import Contribution, Wrapped
from strategies.wrapped.requirements import check_wrapped, least_hospitals, least_models

from .answers import Expected, LegAnswers, absent
from .approval import WAITING, NewcomerWait
from .closing import ClosingFigures
from .connect import connect_members
from .exchange import Answer
from .members import Members
from .observer import LegReport
from .quorum import ExperimentFailed, QuorumPause, quorum_problem
from .sealed_study import SealedStudy
from .secure_average import SecureSum, check_secure
from .set_up import (
    Examples,
    agreed_wire,
    check_examples,
    close_experiment,
    collect_agreements,
    make_descriptor,
    set_up,
)
from .signed_request import SignedRequest, sign_assignment
from .storage.journal import JournalError, State
from .storage.snapshot import NextGeneration, Snapshot
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
        self._next_generation: NextGeneration | None = None
        self._saved_aggregation: int | None = None  # the last one whose arrays are in the spool
        self._secure_sum: SecureSum[Mean] | None = None  # in an aggregation leg
        self._saved_sum: State | None = None  # of a run that is resumed
        self._closing: ClosingFigures | None = None
        self._saved_closing: State | None = None  # of a run that is resumed
        self._vouchers: Mapping[str, str] | None = None  # for a sum of the former generation
        self._sum_bytes = b""  # the last secure sum, as requests carry it
        self._figures: Mapping[str, float] = {}
        self._leg_started = 0.0
        self._newcomers = NewcomerWait(study.clock, study.approval_wait)
        # Set by `start_or_resume`:
        self._members: Members
        self._agreed: ConfigRecord
        self._descriptor: Descriptor
        self._wire: Wire
        self._examples: Examples
        self._generation: bytes
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
        self._join(members)
        if agreed is None:
            # The hospitals remember what they agreed to: a resumed run must ask for the same.
            saved = {"descriptor": self._descriptor.to_bytes().hex()}
            study.journal.write(lambda: saved, ())
        else:
            self._check_descriptor(Descriptor.from_bytes(bytes.fromhex(agreed)))
        self._set_up(members, self._descriptor)
        if self._descriptor.first_model_is_given:
            self._spool.put(_FIRST_MODEL, self._wrapped.model.to_bytes(wire=self._wire))
        study.observer.started(study.experiment, self._examples, len(self._legs))

    def _resume(self, grid: Grid, saved: Snapshot) -> None:
        members = connect_members(
            grid,
            self._study,
            saved.roster,
            timeout=self._set_up_timeout,
            names=saved.members,
            everyone=False,
        )
        self._join(members)
        self._check_descriptor(saved.descriptor)
        self._restore(saved)
        if self._descriptor.averaging == "plain":
            check_examples(self._examples, self._settings.weighting)
        log(INFO, "Resuming after leg %d", self.legs_done)

    def _join(self, members: Members) -> None:
        """Check that the strategy suits the members; derive the descriptor and the planner."""
        settings, study, wrapped = self._settings, self._study, self._wrapped
        check_wrapped(
            wrapped.strategy,
            parameters=wrapped.model.trainable_numbers,
            cohort=cohort_size(len(members), settings.fraction),
            chained=settings.is_chained,
        )
        if study.averaging == "secure":
            check_secure(settings, wrapped.strategy, len(members), study.minimum_cohort)
        self._members = members
        nodes = [cohort_node(hospital) for hospital in members.positions]
        self._agreed = wrapped.configure(nodes, self._config, members.grid)
        rounds = self._legs[-1].last_round + 1
        self._descriptor = make_descriptor(
            settings, study, rounds, self._agreed, wrapped.model, wrapped.strategy
        )
        self._wire = agreed_wire(self._descriptor)
        is_given = self._descriptor.first_model_is_given
        given = (Carries.AGGREGATE, ModelRef(_FIRST_MODEL))
        self._planner = Planner(
            hospitals=len(members),
            last_leg=self._legs[-1].number,
            start=given if is_given else (Carries.NOTHING, ModelRef("")),
            permutation=settings.permutation,
            fraction=settings.fraction,
            route_seed=study.route_seed,
            aggregates_as=Carries.SUM if self._sends_sums else Carries.AGGREGATE,
        )

    @property
    def _is_secure(self) -> bool:
        return self._descriptor.averaging == "secure"

    @property
    def _sends_sums(self) -> bool:
        """Whether hospitals are sent sums, which they can check, and not the aggregates."""
        return self._is_secure and self._descriptor.aggregate == "verified"

    @property
    def _threshold(self) -> int:
        """The fewest models in a secure sum."""
        return threshold(len(self._members), self._descriptor.minimum_cohort)

    def _check_descriptor(self, agreed: Descriptor) -> None:
        """Refuse to continue an experiment with other settings than the hospitals agreed to."""
        if agreed != self._descriptor.model_copy(update={"roster": agreed.roster}):
            raise JournalError(
                f"experiment {agreed.experiment} began with other settings, to which the hospitals "
                "agreed: start a new one"
            )
        self._descriptor = agreed

    def _set_up(self, members: Members, descriptor: Descriptor) -> None:
        weighting = self._settings.weighting
        timeout = self._set_up_timeout
        generation = set_up(members, descriptor, self._study, weighting, timeout=timeout)
        self._examples, self._generation = generation.examples, generation.digest

    # --- between an aggregation and the next leg --------------------------------------------------

    def open_generation(self, leg: Leg) -> None:
        """If the roster has changed, continue with its members, who make new keys.

        Only between an aggregation and the next leg: chains are sealed with a generation's keys.
        """
        if not 0 < self.legs_done == self._last_aggregation or self._planned_cohort is not None:
            return
        staying_out: dict[str, str] = {}
        if self._next_generation is None:
            roster = self._study.newest_roster()
            if roster is None or roster.generation <= self._members.roster.generation:
                return
            if not self._newcomers.is_due(roster.generation):
                return
            everybody = self._members.of(roster)
            everybody.present()
            descriptor = self._descriptor.model_copy(update={"roster": roster.digest})
            refusals = collect_agreements(everybody, descriptor, timeout=self._set_up_timeout)
            if late := self._newcomers.late(self._members, roster, refusals):
                self._put_off(roster.generation, late, approval_fingerprint(descriptor, roster))
                return
            staying_out = {name: why for name, why in refusals.items() if why}
            names = tuple(name for name in everybody.names if not refusals[name])
            least = self._descriptor.minimum_cohort if self._is_secure else 2
            needed = max(least, math.ceil(self._study.quorum * len(everybody)))
            if len(names) < needed:
                log(
                    WARNING,
                    "generation %d can't begin, %d of %d have agreed and %d are needed: %s",
                    roster.generation,
                    len(names),
                    len(everybody),
                    needed,
                    "; ".join(f"{name}: {why}" for name, why in staying_out.items()),
                )
                return
            self._next_generation = NextGeneration(roster, names)
            self.save()  # a resumed run must ask the same hospitals
        if self._sends_sums:
            self._vouchers = self._collect_vouchers()
            self.save()  # old members check the sum while they have the keys to do so
        roster, names = self._next_generation.roster, self._next_generation.names
        members = self._members.of(roster, names)
        members.present()
        descriptor = self._descriptor.model_copy(update={"roster": roster.digest})
        self._set_up(members, descriptor)
        self._members, self._descriptor = members, descriptor
        aggregate = ModelRef(_aggregate_name(self._last_aggregation))
        self._planner.open_generation(len(members), leg.first_round, aggregate)
        self._signed.clear()
        self._next_generation = None
        log(INFO, "Generation %d: %s", roster.generation, ", ".join(names))
        self._study.observer.generation_began(roster.generation, self._examples, staying_out)

    def _put_off(self, generation: int, late: list[HospitalName], fingerprint: str) -> None:
        log(WARNING, "generation %d waits for approval by %s", generation, ", ".join(late))
        self._study.observer.waiting_for_approval(dict.fromkeys(late, WAITING), fingerprint)

    def _collect_vouchers(self) -> dict[str, str]:
        """Have the present members sign the sum that the next generation starts from."""
        if self._vouchers:
            return dict(self._vouchers)  # of a run that is resumed
        self._members.present()
        request = Vouch(
            experiment=self._descriptor.experiment,
            payload=self._spool.get(_aggregate_name(self._last_aggregation)),
        )
        answers = self._members.ask_all(request, timeout=self._set_up_timeout)
        return {
            name: answer.reply.payload.hex()
            for name, answer in answers.items()
            if isinstance(answer.reply, Vouched)
        }

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
                        self._descriptor.experiment,
                        self._spool,
                        cohort=self._sum_cohort(plan),
                        vouchers=self._vouchers,
                    )
        self._begin_sum(plan)
        nodes = [cohort_node(hospital) for hospital in plan.cohort]
        if self._wrapped.configure(nodes, self._config, self._members.grid) != self._agreed:
            raise ValueError(
                f"{type(self._wrapped.strategy).__name__} changed its config in leg {leg.number}, "
                "but hospitals agree to an experiment's settings once, before it starts"
            )
        self.save()
        return plan

    def _sum_cohort(self, plan: Plan) -> tuple[str, ...] | None:
        """Return the members of the leg's secure sum: all who are asked for a model."""
        if not self._is_secure or plan.leg.ending is Ending.HAND_OVER:
            return None
        return tuple(sorted(self._members.names[a.hospital] for a in plan.assignments))

    def _begin_sum(self, plan: Plan) -> None:
        cohort = self._sum_cohort(plan)
        if cohort is None:
            self._secure_sum = None
            return
        model, count = self._wrapped.model, len(self._members)
        form = VectorForm(
            layout_of(model.parameters),
            layout_of(model.buffers),
            members=count,
            weighted=self._descriptor.weighted,
            narrow=self._wire != "same",
        )
        leg = self._secure_leg(plan.leg.number, cohort)
        last = LastAggregate()
        if self._last_aggregation:
            sent = self._spool.get(_aggregate_name(self._last_aggregation))
            last = LastAggregate.of(self._last_aggregation, sent)
        self._secure_sum = SecureSum(leg, form, self._members, self._spool, last.to_bytes())
        if self._saved_sum is not None:
            self._secure_sum.restore(self._saved_sum)
            self._saved_sum = None

    def _secure_leg(self, number: int, cohort: tuple[str, ...]) -> SecureLeg:
        name = self._descriptor.experiment
        return SecureLeg(name, self._generation, number, cohort, self._threshold)

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
        expected = Expected(
            self._wrapped.model, self._wire, self._descriptor.sealed, self._is_secure
        )
        answers = LegAnswers(plan, members, expected, self._spool, self._secure_sum)
        if self._secure_sum is not None and self._secure_sum.survivors:
            answers.restore(self._secure_sum.survivors)  # resumed after the first trip
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
        if self._secure_sum is not None:
            self._secure_sum.fix_survivors()
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
        if self._secure_sum is not None:
            return self._secure_contribution(plan, answers, self._secure_sum)
        found: dict[Position, Contribution] = {}
        for assignment in plan.assignments:
            hospital = assignment.hospital
            reply = answers.trained.get(hospital)
            if not isinstance(reply, Trained):
                continue
            model = StoredModel(self._spool, answers.models[hospital].name, self._wire)
            self._study.observer.received(plan.leg, self._members.names[hospital], model)
            found[hospital] = Contribution(
                node=cohort_node(hospital),
                model=model,
                weight=self._weight(assignment),
                loss=math.nan if reply.loss is None else reply.loss,
                accuracy=math.nan if reply.accuracy is None else reply.accuracy,
            )
        return found

    def _secure_contribution(
        self, plan: Plan, answers: LegAnswers, secure_sum: SecureSum[Mean]
    ) -> dict[Position, Contribution]:
        mean, self._sum_bytes = secure_sum.finish(
            self.save, lambda: self._pause(plan.leg), self._timeout
        )
        self._figures = mean.figures
        first = min(answers.trained)  # the strategy needs an address; any of the survivors' will do
        return {
            first: Contribution(
                node=cohort_node(first),
                model=mean.model,
                weight=float(mean.weight),
                loss=mean.figures.get("loss", math.nan),
                accuracy=mean.figures.get("accuracy", math.nan),
                norm=mean.mean_norm,
            )
        }

    def _weight(self, assignment: Assignment) -> float:
        weighting = self._settings.weighting
        if weighting == "equal":
            return 1.0
        visited = {assignment.hospital}
        if weighting == "chain-examples":
            visited |= set(assignment.queued.chain.visits)
        return float(sum(self._examples[self._members.names[h]] or 0 for h in visited))

    def store_aggregate(self, plan: Plan, answers: LegAnswers, aggregate: ModelState) -> None:
        """Queue the aggregate for every hospital that was drawn."""
        self._last_aggregation = plan.leg.number
        stored = ModelRef(_aggregate_name(plan.leg.number))
        data = self._sum_bytes if self._sends_sums else aggregate.to_bytes(wire=self._wire)
        self._spool.put(stored.name, data)
        self._secure_sum, self._sum_bytes, self._vouchers = None, b"", None
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
                figures=self._figures,
            )
        )
        self._figures = {}

    def _weights(
        self, answers: LegAnswers, models: dict[Position, Contribution]
    ) -> dict[str, float]:
        """Return each hospital's weight in the aggregate, unless it stays secret."""
        names = self._members.names
        if not self._is_secure or not models:
            return {names[hospital]: model.weight for hospital, model in models.items()}
        return {} if self._descriptor.weighted else {names[h]: 1.0 for h in answers.trained}

    def close(self) -> None:
        """Deliver the final model to every member; the keys are destroyed there."""
        if self._sends_sums:
            final = self._spool.get(_aggregate_name(self._last_aggregation))
        else:
            final = self._wrapped.model.to_bytes(wire=self._wire)
        if self._is_secure:
            self._closing = self._closing_figures(final)
        self.save()  # so that a resumed run delivers the same model
        self._spool.put(_FINAL_MODEL, final)
        totals = None
        if self._closing is not None:
            # Nobody waits for figures: without a quorum there are none.
            pause = QuorumPause(self._legs[-1], 0.0, self._study.observer, self._study.clock)
            totals = self._closing.collect(self.save, pause, self._timeout)
        is_random = self._descriptor.schedule_commitment is not None
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

    def _closing_figures(self, final: bytes) -> ClosingFigures:
        last = self._legs[-1]
        return ClosingFigures(
            self._members,
            self._spool,
            leg=lambda cohort: self._secure_leg(last.number + 1, cohort),
            classes=self._descriptor.classes,
            model=_FINAL_MODEL,
            aggregate=LastAggregate.of(last.number, final).to_bytes(),
            saved=self._saved_closing,
        )

    # --- saved state ------------------------------------------------------------------------------

    def save(self) -> None:
        """Persist the state; models that are no longer needed are dropped."""
        last = self._last_aggregation
        models = {model.name for model in self._planner.models()}
        if last and (self._next_generation or self._is_secure):
            models |= {_aggregate_name(last)}
        if self._secure_sum is not None:
            models |= self._secure_sum.stored
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
            descriptor=self._descriptor,
            roster=self._members.roster,
            members=self._members.names,
            next_generation=self._next_generation,
            examples=self._examples,
            generation=self._generation,
            secure_sum=None if self._secure_sum is None else self._secure_sum.to_state(),
            closing=None if self._closing is None else self._closing.to_state(),
            vouchers=self._vouchers,
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
        self._examples = saved.examples
        self._generation, self._saved_sum = saved.generation, saved.secure_sum
        self._vouchers, self._saved_closing = saved.vouchers, saved.closing
        self.legs_done = saved.legs_done
        self._last_aggregation = self._saved_aggregation = last
        self._next_generation = saved.next_generation
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
        if self._is_secure:
            return self._threshold
        return least_models(self._wrapped.strategy, self._wrapped.model.trainable_numbers)


def _has_no_space(answer: Answer) -> bool:
    return isinstance(answer.reply, Refusal) and answer.reply.code is RefusalCode.DISK_FULL


def _aggregate_name(leg: int) -> str:
    return f"aggregate-{leg}"
