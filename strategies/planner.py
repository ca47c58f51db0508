"""The coordinator's book of chains: who trains which model next, and where it goes then.

Pure bookkeeping, free of Flower and of tensors, so that every engine follows the same routes. The
content of a model (`T`) is whatever the engine keeps: an envelope's bytes, an index into a stack.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from protocol.messages import Carries
from protocol.randomness import stream

from .permutation import Permutation, assign
from .schedule import Ending, Leg

T = TypeVar("T")


@dataclass
class Chain:
    """One model's way through the hospitals since the last aggregation."""

    visits: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Parcel(Generic[T]):
    """A model waiting at the coordinator for the hospital that trains it next."""

    carries: Carries
    content: T
    chain: Chain


@dataclass(frozen=True)
class Task(Generic[T]):
    """What one hospital is asked for; hospitals are named by their position in the roster."""

    leg: int
    hospital: int
    first_round: int
    local_rounds: int
    parcel: Parcel[T]
    recipient: int | None  # None: the model is sent for aggregation


@dataclass(frozen=True)
class Plan(Generic[T]):
    """One leg: who was drawn, who of them is present, and what they are asked, in roster order."""

    leg: Leg
    drawn: tuple[int, ...]
    cohort: tuple[int, ...]
    tasks: tuple[Task[T], ...]


def cohort_size(hospitals: int, fraction: float) -> int:
    """Return how many of the hospitals a leg draws: the paper's C·m, but at least two."""
    return min(hospitals, max(2, int(fraction * hospitals + 0.5)))


class Planner(Generic[T]):
    """Plans legs and takes their outcome into account.

    Parameters
    ----------
    hospitals
        How many members the roster has.
    last_leg
        Number of the experiment's last leg, in which everybody is drawn.
    start
        The model every hospital begins with, and how a request carries it.
    fraction
        Share C of the hospitals drawn in a leg, at least two. Who is not drawn catches up on the
        missed rounds when drawn next.
    route_seed
        The coordinator's secret: cohorts and permutations follow from it.
    """

    def __init__(
        self,
        *,
        hospitals: int,
        last_leg: int,
        start: tuple[Carries, T],
        permutation: Permutation,
        fraction: float,
        route_seed: bytes,
    ) -> None:
        self.hospitals = hospitals
        self.last_leg = last_leg
        self.permutation = permutation
        self.fraction = fraction
        self._route_seed = route_seed
        self._next_round = [0] * hospitals
        self._waiting: list[deque[Parcel[T]]] = [
            deque([Parcel(*start, Chain())]) for _ in range(hospitals)
        ]
        self._parked: dict[int, Task[T]] = {}
        self.lost_chains = 0

    @property
    def parked(self) -> tuple[int, ...]:
        """Return the hospitals that were asked and have not answered yet."""
        return tuple(sorted(self._parked))

    def plan(self, leg: Leg, present: Collection[int]) -> Plan[T]:
        """Plan a leg for the hospitals `present`."""
        drawn = self._draw(leg, present)
        cohort = tuple(hospital for hospital in drawn if hospital in present)
        tasks = self._hand_overs(leg, cohort) if leg.ending is Ending.HAND_OVER else []
        if leg.ending is Ending.AGGREGATION:
            # A parked hand-over is not asked for again here: its envelope could not be aggregated.
            # Its hospital, if it is back, sends what else waits for it.
            tasks = [self._task(leg, h, None) for h in cohort if self._waiting[h]]
        for hospital in drawn:
            # Who was drawn and could not train does not make up for it.
            self._next_round[hospital] = leg.last_round + 1
        return Plan(leg, drawn, cohort, tuple(sorted(tasks, key=lambda task: task.hospital)))

    def handed_over(self, plan: Plan[T], answers: Mapping[int, T]) -> None:
        """Account for a leg that ended in a hand-over: `answers` holds the models by sender."""
        for task in plan.tasks:
            if task.leg == plan.leg.number:
                self._waiting[task.hospital].popleft()
            if task.hospital in answers and task.recipient is not None:
                self._parked.pop(task.hospital, None)
                task.parcel.chain.visits[task.hospital] += 1
                parcel = Parcel(Carries.ENVELOPE, answers[task.hospital], task.parcel.chain)
                self._waiting[task.recipient].append(parcel)
            else:
                self._parked[task.hospital] = task

    def aggregated(self, plan: Plan[T], answered: Collection[int], aggregate: T) -> None:
        """Account for an aggregation: all who were drawn go on from it, present or not."""
        for hospital in plan.drawn:
            models = len(self._waiting[hospital]) + (hospital in self._parked)
            self.lost_chains += models - (hospital in answered)
            self._parked.pop(hospital, None)
            self._waiting[hospital] = deque([Parcel(Carries.AGGREGATE, aggregate, Chain())])

    def _draw(self, leg: Leg, present: Collection[int]) -> tuple[int, ...]:
        size = cohort_size(self.hospitals, self.fraction)
        if leg.number == self.last_leg or size >= self.hospitals:
            return tuple(range(self.hospitals))
        rng = stream(self._route_seed, "cohort", leg.number)
        if size <= len(present):
            return tuple(sorted(rng.choice(sorted(present), size, replace=False).tolist()))
        # Absent ones fill the cohort up, so that a quorum is always of as many as were wanted.
        absent = sorted(set(range(self.hospitals)) - set(present))
        filled = rng.choice(absent, size - len(present), replace=False).tolist()
        return tuple(sorted([*present, *filled]))

    def _hand_overs(self, leg: Leg, cohort: tuple[int, ...]) -> list[Task[T]]:
        asked_again = [self._parked[h] for h in cohort if h in self._parked]
        senders = [h for h in cohort if self._has_model(h)]
        recipients = self._recipients(leg, cohort, senders, asked_again)
        chains = {h: self._waiting[h][0].chain for h in senders}

        def visits(sender: int, recipient: int) -> int:
            return chains[sender].visits[recipient] + (sender == recipient)

        rng = stream(self._route_seed, "permutation", leg.number)
        routes = assign(self.permutation, senders, recipients, visits, rng)
        return asked_again + [self._task(leg, h, routes[h]) for h in senders]

    def _recipients(
        self, leg: Leg, cohort: tuple[int, ...], senders: list[int], asked_again: list[Task[T]]
    ) -> list[int]:
        """Choose as many of the cohort as there are senders, those without a model first.

        Last come those whose answer is overdue: a chain sent to them may never go on.
        """
        if len(senders) == len(cohort):
            return list(cohort)
        provided = Counter(task.recipient for task in asked_again)
        for hospital in cohort:
            provided[hospital] += max(0, len(self._waiting[hospital]) - (hospital in senders))
        rng = stream(self._route_seed, "recipients", leg.number)
        order = dict(zip(cohort, rng.permutation(len(cohort)), strict=True))
        ranks = {h: (h in self._parked, provided[h] > 0, order[h]) for h in cohort}
        return sorted(sorted(cohort, key=ranks.__getitem__)[: len(senders)])

    def _has_model(self, hospital: int) -> bool:
        # One model per leg, oldest first: a parked one is older than any that waits.
        return hospital not in self._parked and bool(self._waiting[hospital])

    def _task(self, leg: Leg, hospital: int, recipient: int | None) -> Task[T]:
        first = self._next_round[hospital]
        rounds = leg.last_round + 1 - first
        return Task(leg.number, hospital, first, rounds, self._waiting[hospital][0], recipient)
