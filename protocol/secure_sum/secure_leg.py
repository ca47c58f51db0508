"""One secure sum: the experiment, generation, leg and cohort that all its parts are bound to."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from protocol.canonical import prefixed


class SecureSumError(ValueError):
    """A step of a secure sum can't be taken; the message says why."""


def threshold(members: int, minimum_cohort: int = 0) -> int:
    """Return t, the fewest survivors of a sum over a generation of so many members.

    More than two thirds: no two survivor sets can both be signed by t members, unless more than a
    third of them collude with the coordinator. Never below the descriptor's `minimum_cohort`.
    """
    return max(2 * members // 3 + 1, minimum_cohort)


def most_colluding(members: int) -> int:
    """Return c, how many members may collude with the coordinator without learning more."""
    return -(-members // 3) - 1


@dataclass(frozen=True)
class SecureLeg:
    """A leg that ends in a secure sum.

    `cohort` is C: the names of the members that are asked for a vector, in ascending order.
    `threshold` is t: so many of them must survive.
    """

    experiment: str
    generation: bytes  # the digest of the generation's announcements
    leg: int
    cohort: tuple[str, ...]
    threshold: int

    def __post_init__(self) -> None:
        if list(self.cohort) != sorted(set(self.cohort)):
            raise SecureSumError("the cohort's names are not unique and sorted")
        if not 2 <= self.threshold <= len(self.cohort):
            raise SecureSumError(
                f"a cohort of {len(self.cohort)} can't reach a threshold of {self.threshold}"
            )

    @cached_property
    def digest(self) -> bytes:
        """The digest that binds seeds, signatures, shares and tags to this leg and cohort."""
        digest = hashlib.sha256(b"FedDC secure leg v1" + prefixed(self.experiment.encode()))
        digest.update(self.generation + self.leg.to_bytes(8, "big"))
        digest.update(self.threshold.to_bytes(8, "big"))
        for name in self.cohort:
            digest.update(prefixed(name.encode()))
        return digest.digest()

    def point(self, name: str) -> int:
        """Return where a member's Shamir shares lie: its place in the cohort, from 1."""
        return self.cohort.index(name) + 1

    def dropped(self, survivors: Collection[str]) -> tuple[str, ...]:
        """Return C∖S."""
        return tuple(name for name in self.cohort if name not in survivors)

    def check_survivors(self, survivors: Collection[str]) -> None:
        """Refuse a survivor set that is not a subset of C, or smaller than the threshold."""
        if not set(survivors) <= set(self.cohort):
            raise SecureSumError("a survivor is not in the cohort")
        if len(set(survivors)) < self.threshold:
            raise SecureSumError(f"{len(survivors)} survivors, but {self.threshold} are needed")
