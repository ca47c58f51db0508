"""The coordinator's book of chains: who trains which model next, and where it goes then.

Pure bookkeeping, free of Flower and of tensors, so that every engine follows the same routes. The
content of a model (`T`) is whatever the engine keeps: an envelope's bytes, an index into a stack.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from protocol.messages import Carries
from protocol.randomness import stream
from protocol.schedule import Ending, Leg

from .permutation import Permutation, assign

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
        self.missed_rounds = 0

    @property
    def parked(self) -> tuple[int, ...]:
        """Return the hospitals that were asked and have not answered yet."""
        return tuple(sorted(self._parked))

    def plan(self, leg: Leg, present: Collection[int]) -> Plan[T]:
        """Plan a leg for the hospitals `present`; nothing changes before it has ended."""
        drawn = self._draw(leg, present)
        cohort = tuple(hospital for hospital in drawn if hospital in present)
        tasks = self._hand_overs(leg, cohort) if leg.ending is Ending.HAND_OVER else []
        if leg.ending is Ending.AGGREGATION:
            # A parked hand-over is not asked for again here: its envelope could not be aggregated.
            # Its hospital, if it is back, sends what else waits for it.
            tasks = [self._task(leg, h, None) for h in cohort if self._waiting[h]]
        return Plan(leg, drawn, cohort, tuple(sorted(tasks, key=lambda task: task.hospital)))

    def handed_over(
        self,
        plan: Plan[T],
        answers: Mapping[int, T],
        *,
        declined: Collection[int] = (),
        broken: Collection[int] = (),
    ) -> None:
        """Account for a leg that ended in a hand-over: `answers` holds the models by sender.

        Hospitals in `declined` will not send to the recipient they were given: their model stays
        and gets another. Those in `broken` can never train what they were sent: that chain is lost.
        Whoever else did not answer is asked again, byte for byte.
        """
        self._count_missed(plan, answers)
        for task in plan.tasks:
            hospital = task.hospital
            if task.leg == plan.leg.number:
                self._waiting[hospital].popleft()
            self._parked.pop(hospital, None)
            if hospital in answers and task.recipient is not None:
                task.parcel.chain.visits[hospital] += 1
                parcel = Parcel(Carries.ENVELOPE, answers[hospital], task.parcel.chain)
                self._waiting[task.recipient].append(parcel)
            elif hospital in declined:
                self._waiting[hospital].appendleft(task.parcel)
            elif hospital in broken:
                self.lost_chains += 1
            else:
                self._parked[hospital] = task

    def aggregated(self, plan: Plan[T], answered: Collection[int], aggregate: T) -> None:
        """Account for an aggregation: all who were drawn go on from it, present or not."""
        self._count_missed(plan, answered)
        for hospital in plan.drawn:
            self.lost_chains += self._models_at(hospital) - (hospital in answered)
            self._parked.pop(hospital, None)
            self._waiting[hospital] = deque([Parcel(Carries.AGGREGATE, aggregate, Chain())])

    def begin_generation(self, hospitals: int, next_round: int, aggregate: T) -> None:
        """Go on with other hospitals, all of them from the aggregate."""
        self.hospitals = hospitals
        self._next_round = [next_round] * hospitals
        self._parked.clear()
        self._waiting = [
            deque([Parcel(Carries.AGGREGATE, aggregate, Chain())]) for _ in range(hospitals)
        ]

    # --- on paper, so that a resumed run goes on from here ----------------------------------------

    def contents(self) -> Iterator[T]:
        """Yield every model that waits, and every one that is being asked for again."""
        for waiting in self._waiting:
            yield from (parcel.content for parcel in waiting)
        yield from (task.parcel.content for task in self._parked.values())

    def to_state(self, write: Callable[[T], Any]) -> dict[str, Any]:
        """Return all of this book as JSON has it; `write` says how a content is written down."""

        def parcel(parcel: Parcel[T]) -> dict[str, Any]:
            visits = sorted(parcel.chain.visits.items())
            return {"carries": parcel.carries, "content": write(parcel.content), "visits": visits}

        return {
            "hospitals": self.hospitals,
            "next_round": self._next_round,
            "waiting": [[parcel(entry) for entry in waiting] for waiting in self._waiting],
            "parked": [
                {
                    "leg": task.leg,
                    "hospital": task.hospital,
                    "first_round": task.first_round,
                    "local_rounds": task.local_rounds,
                    "recipient": task.recipient,
                    "parcel": parcel(task.parcel),
                }
                for task in self._parked.values()
            ],
            "lost_chains": self.lost_chains,
            "missed_rounds": self.missed_rounds,
        }

    def restore(self, state: Mapping[str, Any], read: Callable[[Any], T]) -> None:
        """Take over what `to_state` returned."""

        def parcel(entry: Mapping[str, Any]) -> Parcel[T]:
            visits = Counter(dict(entry["visits"]))
            return Parcel(Carries(entry["carries"]), read(entry["content"]), Chain(visits))

        self.hospitals = state["hospitals"]
        self._next_round = list(state["next_round"])
        self._waiting = [deque(parcel(entry) for entry in entries) for entries in state["waiting"]]
        self._parked = {
            entry["hospital"]: Task(**{**entry, "parcel": parcel(entry["parcel"])})
            for entry in state["parked"]
        }
        self.lost_chains = state["lost_chains"]
        self.missed_rounds = state["missed_rounds"]

    # ----------------------------------------------------------------------------------------------

    def _count_missed(self, plan: Plan[T], answered: Collection[int]) -> None:
        """Count the rounds that chains did not train; who was drawn does not make up for them."""
        models = sum(self._models_at(hospital) for hospital in plan.drawn)
        trained = sum(task.hospital in answered for task in plan.tasks)
        self.missed_rounds += (models - trained) * plan.leg.local_rounds
        for hospital in plan.drawn:
            self._next_round[hospital] = plan.leg.last_round + 1

    def _models_at(self, hospital: int) -> int:
        return len(self._waiting[hospital]) + (hospital in self._parked)

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
