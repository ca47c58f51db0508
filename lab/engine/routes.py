"""Which model is at which hospital: `strategies.routing.planner` for hospitals that always answer.

The planner keeps a record for every chain, which takes longer than training a linear model. In the
lab no hospital is ever absent, so the routes of a leg are one shuffle of indices. A test compares
the two.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.randomness import stream
from protocol.schedule import Ending, Leg
from strategies.routing.permutation import Permutation, assign
from strategies.routing.planner import cohort_size

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """A leg's training: model `slots[i]` of the stack at `hospitals[i]`, in roster order.

    Hospitals that were not drawn for some legs catch up, so their first rounds differ. All train
    up to `last_round`.
    """

    hospitals: Positions
    slots: Positions
    first_rounds: Positions
    last_round: int
    since_aggregate: Positions
    """Rounds since each hospital last began with an aggregate, or with its first model."""
    aggregates: bool = False
    """Whether the leg ends in an aggregation."""

    def __len__(self) -> int:
        return len(self.hospitals)

    @cached_property
    def together(self) -> bool:
        """Whether all hospitals begin with the same round."""
        return bool((self.first_rounds == self.first_rounds[0]).all())

    @property
    def client_rounds(self) -> int:
        return len(self) * (self.last_round + 1) - int(self.first_rounds.sum())


class Routes:
    """Tracks every model's route through the hospitals."""

    def __init__(
        self,
        *,
        hospitals: int,
        last_leg: int,
        permutation: Permutation,
        fraction: float,
        route_seed: bytes,
        counts_visits: bool,
    ) -> None:
        self._everyone = np.arange(hospitals)
        self._last_leg = last_leg
        self._permutation = permutation
        self._size = cohort_size(hospitals, fraction)
        self._route_seed = route_seed
        self.slot_of = np.arange(hospitals)
        self._next_round = np.zeros(hospitals, dtype=np.int64)
        self._aggregate_round = np.zeros(hospitals, dtype=np.int64)
        # Visits of each model to each hospital since its last aggregation. The matrix grows with
        # the square of the hospitals, so it exists only where something reads it.
        self._visits = (
            np.zeros((hospitals, hospitals), dtype=np.int32)
            if counts_visits or permutation == "coverage"
            else None
        )

    def work(self, leg: Leg) -> Work:
        """Return who trains which model in the leg."""
        cohort = self._draw(leg)
        first_rounds = self._next_round[cohort]
        since = first_rounds - self._aggregate_round[cohort]
        aggregates = leg.ending is Ending.AGGREGATION
        work = Work(cohort, self.slot_of[cohort], first_rounds, leg.last_round, since, aggregates)
        self._next_round[cohort] = leg.last_round + 1
        return work

    def hand_over(self, leg: Leg, work: Work) -> None:
        """Move every model of the leg to its drawn recipient."""
        rng = stream(self._route_seed, "permutation", leg.number)
        cohort = work.hospitals
        if self._permutation == "uniform":
            recipients = cohort[rng.permutation(len(cohort))]
        else:
            slot_of, visits = self.slot_of, self._visits

            def been(sender: int, recipient: int) -> int:
                times = 0 if visits is None else int(visits[slot_of[sender], recipient])
                return times + (sender == recipient)

            members = cohort.tolist()
            drawn = assign(self._permutation, members, members, been, rng)
            recipients = np.array([drawn[sender] for sender in members])
        if self._visits is not None:
            self._visits[work.slots, cohort] += 1
        self.slot_of[recipients] = work.slots

    def visited(self, work: Work) -> NDArray[np.bool_]:
        """Return for each model of the leg which hospitals its chain has visited, with this leg."""
        if self._visits is None:
            raise RuntimeError("visits are not counted")
        visited = self._visits[work.slots] > 0
        visited[np.arange(len(work)), work.hospitals] = True
        return visited

    def aggregated(self, work: Work) -> None:
        """Start new chains; every hospital of the leg keeps its slot."""
        self._aggregate_round[work.hospitals] = work.last_round + 1
        if self._visits is not None:
            self._visits[work.slots] = 0

    def _draw(self, leg: Leg) -> Positions:
        if leg.number == self._last_leg or self._size >= len(self._everyone):
            return self._everyone
        rng = stream(self._route_seed, "cohort", leg.number)
        return np.sort(rng.choice(self._everyone, self._size, replace=False))

    def to_state(self) -> dict[str, Any]:
        """Return everything later legs depend on, as JSON-compatible values."""
        return {
            "slot_of": self.slot_of.tolist(),
            "next_round": self._next_round.tolist(),
            "aggregate_round": self._aggregate_round.tolist(),
            "visits": None if self._visits is None else self._visits.tolist(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `to_state`."""
        self.slot_of = np.array(state["slot_of"], dtype=np.int64)
        self._next_round = np.array(state["next_round"], dtype=np.int64)
        self._aggregate_round = np.array(state["aggregate_round"], dtype=np.int64)
        if self._visits is not None:
            self._visits = np.array(state["visits"], dtype=np.int32)
