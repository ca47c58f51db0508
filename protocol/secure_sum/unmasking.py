"""The coordinator's side of a secure sum: add masked vectors, then remove the masks of the sum."""

from collections.abc import Collection, Mapping

from . import shamir
from .masks import add_masks, pair_masks
from .secure_leg import SecureLeg, SecureSumError
from .shamir import SHARE_BYTES
from .vector import Vector


def unmask(
    total: Vector,
    leg: SecureLeg,
    survivors: Collection[str],
    revealed: Mapping[str, bytes],
) -> None:
    """Remove the masks from the sum of the survivors' vectors, in place.

    `revealed` holds what at least t survivors have revealed.
    """
    leg.check_survivors(survivors)
    if len(revealed) < leg.threshold or not set(revealed) <= set(survivors):
        raise SecureSumError(f"{len(revealed)} have revealed shares, {leg.threshold} are needed")
    names, dropped = sorted(survivors), leg.dropped(survivors)
    shares = {leg.point(name): _parse(data, names, dropped) for name, data in revealed.items()}
    chosen = dict(sorted(shares.items())[: leg.threshold])

    def seed(owner: str, other: str) -> bytes:
        return shamir.combine({point: given[owner, other] for point, given in chosen.items()})

    plus: list[bytes] = []
    minus: list[bytes] = []
    for owner in names:
        minus.append(seed(owner, owner))
        # The masks with those who dropped out do not cancel: remove what the owner added.
        added, subtracted = pair_masks(owner, {other: seed(owner, other) for other in dropped})
        minus += added
        plus += subtracted
    add_masks(total, plus, minus)


def revealed_bytes(survivors: int, dropped: int) -> int:
    """Return how long the shares are that a survivor reveals."""
    return survivors * (1 + dropped) * SHARE_BYTES


def _parse(
    data: bytes, survivors: list[str], dropped: tuple[str, ...]
) -> dict[tuple[str, str], bytes]:
    """Return shares by the member whose seed it is, and the other of the pair (itself: self)."""
    if len(data) != revealed_bytes(len(survivors), len(dropped)):
        raise SecureSumError(f"invalid shares of {len(data)} bytes")
    places = [(owner, other) for owner in survivors for other in (owner, *dropped)]
    return {
        place: data[at * SHARE_BYTES : (at + 1) * SHARE_BYTES] for at, place in enumerate(places)
    }
