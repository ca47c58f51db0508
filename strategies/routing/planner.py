"""Who trains which model next, and where the model goes then.

Pure bookkeeping, free of Flower and of tensors: a model is a name here (`ModelRef`).
"""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from protocol.messages import Carries
from protocol.randomness import stream
from protocol.schedule import Ending, Leg
from strategies.identifiers import Position

from .permutation import Permutation, assign


@dataclass
class Chain:
    """One model's way through the hospitals since the last aggregation.

    Chains are numbered by the hospital that they begin at.
    """

    number: int = 0
    visits: Counter[Position] = field(default_factory=Counter)


@dataclass(frozen=True)
class ModelRef:
    """A stored model: its name in the spool, and for an envelope the leg it was sealed in."""

    name: str
    sealed_in: int | None = None


@dataclass(frozen=True)
class QueuedModel:
    """A model that waits at the coordinator for the hospital that trains it next."""

    carries: Carries
    model: ModelRef
    chain: Chain

    def to_state(self) -> dict[str, Any]:
        return {
            "carries": self.carries,
            "model": [self.model.name, self.model.sealed_in],
            "chain": self.chain.number,
            "visits": sorted(self.chain.visits.items()),
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "QueuedModel":
        chain = Chain(state["chain"], Counter(dict(state["visits"])))
        return QueuedModel(Carries(state["carries"]), ModelRef(*state["model"]), chain)


@dataclass(frozen=True)
class Assignment:
    """What one hospital is asked to do in a leg."""

    leg: int
    hospital: Position
    first_round: int
    local_rounds: int
    queued: QueuedModel
    recipient: Position | None  # None: the model is sent for aggregation

    def to_state(self) -> dict[str, Any]:
        return {**vars(self), "queued": self.queued.to_state()}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "Assignment":
        return Assignment(**{**state, "queued": QueuedModel.from_state(state["queued"])})


@dataclass(frozen=True)
class Plan:
    """One leg: who was drawn, who of them is present, and what each is asked, in roster order."""

    leg: Leg
    drawn: tuple[Position, ...]
    cohort: tuple[Position, ...]
    assignments: tuple[Assignment, ...]


def cohort_size(hospitals: int, fraction: float) -> int:
    """Return how many of the hospitals a leg draws: the paper's C·m, but at least two."""
    return min(hospitals, max(2, int(fraction * hospitals + 0.5)))


class Planner:
    """Plans legs and accounts for their outcome.

    Parameters
    ----------
    hospitals
        How many members the roster has.
    last_leg
        Number of the experiment's last leg, in which everybody is drawn.
    start
        The model every hospital begins with, and how a request carries it.
    fraction
        Fraction C of the hospitals drawn in a leg, at least two. A hospital that is not drawn
        catches up on the missed rounds when it is drawn next.
    route_seed
        The coordinator's secret: cohorts and permutations follow from it.
    aggregates_as
        How requests carry an aggregate: as a model, or as the sum that hospitals check.
    """

    def __init__(
        self,
        *,
        hospitals: int,
        last_leg: int,
        start: tuple[Carries, ModelRef],
        permutation: Permutation,
        fraction: float,
        route_seed: bytes,
        aggregates_as: Carries = Carries.AGGREGATE,
    ) -> None:
        self._aggregates_as = aggregates_as
        self.hospitals = hospitals
        self.last_leg = last_leg
        self.permutation = permutation
        self.fraction = fraction
        self._route_seed = route_seed
        self._next_round = [0] * hospitals
        self._queues: list[deque[QueuedModel]] = [
            deque([QueuedModel(*start, Chain(number))]) for number in range(hospitals)
        ]
        self._parked: dict[Position, Assignment] = {}
        self.lost_chains = 0
        self.missed_rounds = 0

    @property
    def parked(self) -> tuple[Position, ...]:
        """Return the hospitals that were asked and have not answered yet."""
        return tuple(sorted(self._parked))

    def plan(self, leg: Leg, present: Collection[Position]) -> Plan:
        """Plan a leg for the hospitals `present`; nothing changes before it has ended."""
        drawn = self._draw(leg, present)
        cohort = tuple(hospital for hospital in drawn if hospital in present)
        assignments = self._hand_overs(leg, cohort) if leg.ending is Ending.HAND_OVER else []
        if leg.ending is Ending.AGGREGATION:
            # A parked hand-over is not asked for again here: its envelope could not be aggregated.
            # Its hospital, if it is back, sends what else waits for it.
            assignments = [self._assignment(leg, h, None) for h in cohort if self._queues[h]]
        assignments.sort(key=lambda assignment: assignment.hospital)
        return Plan(leg, drawn, cohort, tuple(assignments))

    def handed_over(
        self,
        plan: Plan,
        answers: Mapping[Position, ModelRef],
        *,
        declined: Collection[Position] = (),
        broken: Collection[Position] = (),
        passed_on: Collection[Position] = (),
    ) -> None:
        """Account for a leg that ended in a hand-over: `answers` holds the models by sender.

        A hospital in `declined` refused its recipient: its model stays and gets another one. A
        hospital in `broken` can never train what it was sent: that chain is lost. The model of one
        in `passed_on` goes to its recipient untrained. The request of any other hospital that did
        not answer is parked and sent again, byte for byte.
        """
        self._count_missed(plan, answers)
        for assignment in plan.assignments:
            hospital = assignment.hospital
            if assignment.leg == plan.leg.number:
                self._queues[hospital].popleft()
            self._parked.pop(hospital, None)
            if hospital in answers and assignment.recipient is not None:
                assignment.queued.chain.visits[hospital] += 1
                model = QueuedModel(Carries.ENVELOPE, answers[hospital], assignment.queued.chain)
                self._queues[assignment.recipient].append(model)
            elif hospital in declined:
                self._queues[hospital].appendleft(assignment.queued)
            elif hospital in broken:
                self.lost_chains += 1
            elif hospital in passed_on and assignment.recipient is not None:
                self._queues[assignment.recipient].append(assignment.queued)
            else:
                self._parked[hospital] = assignment

    def aggregated(self, plan: Plan, answered: Collection[Position], aggregate: ModelRef) -> None:
        """Account for an aggregation: all drawn hospitals continue from it, present or not."""
        self._count_missed(plan, answered)
        for hospital in plan.drawn:
            self.lost_chains += self._models_at(hospital) - (hospital in answered)
            self._parked.pop(hospital, None)
            self._queues[hospital] = deque([self._new_chain(aggregate, hospital)])

    def stayed(self, models: Mapping[Position, ModelRef]) -> None:
        """Account for a round after which models stay where they were trained."""
        for hospital, model in models.items():
            queued = self._queues[hospital].popleft()
            self._queues[hospital].appendleft(replace(queued, model=model))

    def next_model(self, hospital: Position) -> ModelRef | None:
        """Return the model that a hospital trains next, if it has one."""
        queue = self._queues[hospital]
        return queue[0].model if queue else None

    def redistribute(self, present: Collection[Position]) -> dict[Position, int]:
        """Move the models of absent hospitals to those present that have the fewest.

        Return how many models each absent hospital had.
        """
        moved: dict[Position, int] = {}
        for hospital, queue in enumerate(self._queues):
            if queue and hospital not in present:
                moved[Position(hospital)] = len(queue)
                while queue:
                    fewest = min(sorted(present), key=lambda other: len(self._queues[other]))
                    self._queues[fewest].append(queue.popleft())
        return moved

    def open_generation(self, hospitals: int, next_round: int, aggregate: ModelRef) -> None:
        """Continue with other hospitals, all of them from the aggregate."""
        self.hospitals = hospitals
        self._next_round = [next_round] * hospitals
        self._parked.clear()
        self._queues = [deque([self._new_chain(aggregate, number)]) for number in range(hospitals)]

    def change_members(
        self, former: Sequence[Position | None], next_round: int, aggregate: ModelRef
    ) -> None:
        """Continue with other hospitals; newcomers, whose former position is `None`, join here.

        Newcomers start from the aggregate, the others keep what they have.
        """
        gone = set(range(self.hospitals)) - set(former)
        self.lost_chains += sum(
            queued.model != aggregate for position in gone for queued in self._queues[position]
        )
        now = {old: Position(new) for new, old in enumerate(former) if old is not None}
        queues = []
        for new, old in enumerate(former):
            if old is None:
                queues.append(deque([self._new_chain(aggregate, new)]))
                continue
            queues.append(self._queues[old])
            for queued in self._queues[old]:
                visits = queued.chain.visits
                queued.chain.visits = Counter({now[h]: n for h, n in visits.items() if h in now})
        self.hospitals, self._queues = len(former), queues
        self._next_round = [next_round] * len(former)
        self._parked.clear()

    # --- saved state ------------------------------------------------------------------------------

    def models(self) -> Iterator[ModelRef]:
        """Yield every model that waits or is part of a parked request."""
        for queue in self._queues:
            yield from (queued.model for queued in queue)
        yield from (assignment.queued.model for assignment in self._parked.values())

    def to_state(self) -> dict[str, Any]:
        """Return everything that changes from leg to leg, for JSON."""
        return {
            "hospitals": self.hospitals,
            "next_round": self._next_round,
            "queues": [[queued.to_state() for queued in queue] for queue in self._queues],
            "parked": [assignment.to_state() for assignment in self._parked.values()],
            "lost_chains": self.lost_chains,
            "missed_rounds": self.missed_rounds,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `to_state` returned."""
        self.hospitals = state["hospitals"]
        self._next_round = list(state["next_round"])
        self._queues = [deque(map(QueuedModel.from_state, queue)) for queue in state["queues"]]
        parked = map(Assignment.from_state, state["parked"])
        self._parked = {assignment.hospital: assignment for assignment in parked}
        self.lost_chains = state["lost_chains"]
        self.missed_rounds = state["missed_rounds"]

    # ----------------------------------------------------------------------------------------------

    def _count_missed(self, plan: Plan, answered: Collection[Position]) -> None:
        """Count the rounds that chains did not train; drawn hospitals do not make up for them."""
        models = sum(self._models_at(hospital) for hospital in plan.drawn)
        trained = sum(assignment.hospital in answered for assignment in plan.assignments)
        self.missed_rounds += (models - trained) * plan.leg.local_rounds
        for hospital in plan.drawn:
            self._next_round[hospital] = plan.leg.last_round + 1

    def _models_at(self, hospital: Position) -> int:
        return len(self._queues[hospital]) + (hospital in self._parked)

    def _draw(self, leg: Leg, present: Collection[Position]) -> tuple[Position, ...]:
        size = cohort_size(self.hospitals, self.fraction)
        everybody = [Position(number) for number in range(self.hospitals)]
        if leg.number == self.last_leg or size >= self.hospitals:
            return tuple(everybody)
        rng = stream(self._route_seed, "cohort", leg.number)
        if size <= len(present):
            return tuple(sorted(rng.choice(sorted(present), size, replace=False).tolist()))
        # Absent hospitals fill the cohort up, so that the quorum counts as many as were wanted.
        absent = [hospital for hospital in everybody if hospital not in present]
        filled = rng.choice(absent, size - len(present), replace=False).tolist()
        return tuple(sorted([*present, *filled]))

    def _hand_overs(self, leg: Leg, cohort: tuple[Position, ...]) -> list[Assignment]:
        asked_again = [self._parked[h] for h in cohort if h in self._parked]
        senders = [h for h in cohort if self._has_model(h)]
        recipients = self._recipients(leg, cohort, senders, asked_again)
        chains = {h: self._queues[h][0].chain for h in senders}

        def visits(sender: Position, recipient: Position) -> int:
            return chains[sender].visits[recipient] + (sender == recipient)

        rng = stream(self._route_seed, "permutation", leg.number)
        routes = assign(self.permutation, senders, recipients, visits, rng)
        return asked_again + [self._assignment(leg, h, routes[h]) for h in senders]

    def _recipients(
        self,
        leg: Leg,
        cohort: tuple[Position, ...],
        senders: list[Position],
        asked_again: list[Assignment],
    ) -> list[Position]:
        """Choose as many of the cohort as there are senders, those without a model first.

        Hospitals whose answer is overdue come last: a chain sent to them may never continue.
        """
        if len(senders) == len(cohort):
            return list(cohort)
        provided = Counter(assignment.recipient for assignment in asked_again)
        for hospital in cohort:
            provided[hospital] += max(0, len(self._queues[hospital]) - (hospital in senders))
        rng = stream(self._route_seed, "recipients", leg.number)
        order = dict(zip(cohort, rng.permutation(len(cohort)), strict=True))
        ranks = {h: (h in self._parked, provided[h] > 0, order[h]) for h in cohort}
        return sorted(sorted(cohort, key=ranks.__getitem__)[: len(senders)])

    def _new_chain(self, aggregate: ModelRef, number: int) -> QueuedModel:
        return QueuedModel(self._aggregates_as, aggregate, Chain(number))

    def _has_model(self, hospital: Position) -> bool:
        # One model per leg, oldest first: a parked one is older than any that waits.
        return hospital not in self._parked and bool(self._queues[hospital])

    def _assignment(self, leg: Leg, hospital: Position, recipient: Position | None) -> Assignment:
        first = self._next_round[hospital]
        rounds = leg.last_round + 1 - first
        return Assignment(leg.number, hospital, first, rounds, self._queues[hospital][0], recipient)
