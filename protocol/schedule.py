"""When models are handed over and when they are aggregated: rounds grouped into legs."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .randomness import SEED_BYTES, stream


def schedule_seed(route_seed: bytes) -> bytes:
    """Derive the seed of a random schedule, which is opened at the end, unlike the route seed."""
    return HKDF(SHA256(), length=SEED_BYTES, salt=None, info=b"schedule").derive(route_seed)


def schedule_commitment(seed: bytes) -> bytes:
    """Return the digest by which a coordinator commits to a random schedule before it starts."""
    return hashlib.sha256(b"FedDC schedule v1" + seed).digest()


class Ending(StrEnum):
    """How a leg ends."""

    HAND_OVER = "hand-over"
    AGGREGATION = "aggregation"


@dataclass(frozen=True)
class Leg:
    """The rounds from one communication to the next; legs count from 1, rounds from 0."""

    number: int
    first_round: int
    local_rounds: int
    ending: Ending

    @property
    def last_round(self) -> int:
        return self.first_round + self.local_rounds - 1


@dataclass(frozen=True)
class Schedule:
    """All legs of an experiment of `rounds` rounds.

    Round t ends in a hand-over when t mod d = d−1 and in an aggregation when t mod b = b−1
    (Algorithm 1); where both fall together the aggregation wins, and the last round always
    aggregates because the algorithm's output is the aggregate. A period of `None` never comes.

    Parameters
    ----------
    secret
        Gives the random schedule of the paper's section on privacy: models travel every
        `daisy_period` rounds, and each time it is an aggregation with probability d/b, drawn from
        this seed (see `schedule_seed`), which only the coordinator knows until the end.
    """

    rounds: int
    daisy_period: int | None
    aggregation_period: int | None
    secret: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, period in (
            ("rounds", self.rounds),
            ("daisy_period", self.daisy_period),
            ("aggregation_period", self.aggregation_period),
        ):
            if period is not None and period < 1:
                raise ValueError(f"{name} must be at least 1, got {period}")
        if self.secret is not None:
            d, b = self.daisy_period, self.aggregation_period
            if d is None or b is None or d > b:
                raise ValueError(
                    "a random schedule needs daisy_period ≤ aggregation_period, "
                    f"got {self.daisy_period} and {self.aggregation_period}"
                )

    @cached_property
    def legs(self) -> tuple[Leg, ...]:
        return tuple(self._legs())

    def _legs(self) -> Iterator[Leg]:
        number, first = 1, 0
        aggregations = self._aggregations()
        for t in range(self.rounds):
            hand_over = self.daisy_period is not None and (t + 1) % self.daisy_period == 0
            if t in aggregations or hand_over:
                ending = Ending.AGGREGATION if t in aggregations else Ending.HAND_OVER
                yield Leg(number, first, t + 1 - first, ending)
                number, first = number + 1, t + 1

    def _aggregations(self) -> set[int]:
        """Return the rounds that end in an aggregation."""
        last = self.rounds - 1
        if self.secret is not None:
            return {last} | self._drawn(self.secret)
        if self.aggregation_period is None:
            return {last}
        return {last, *range(self.aggregation_period - 1, self.rounds, self.aggregation_period)}

    def _drawn(self, secret: bytes) -> set[int]:
        d, b = self.daisy_period, self.aggregation_period
        if d is None or b is None:  # refused in __post_init__; said again for the type checker
            return set()
        times = range(d - 1, self.rounds, d)
        return {t for t in times if stream(secret, "schedule", t).random() < d / b}
