"""Shares of a member's seeds, one for each member of the cohort, sealed for it.

A member's shares for one recipient are as many as the cohort has members, in its order: at its own
place the share of its self seed, at every other the share of the pair seed with that member.
"""

import hashlib
from collections.abc import Callable, Mapping

from protocol.canonical import prefixed
from protocol.sealing import envelope
from protocol.sealing.envelope import Context, EnvelopeError
from protocol.sealing.keys import SIGNATURE_BYTES, Identity, SealingKey, verify

from . import shamir
from .secure_leg import SecureLeg, SecureSumError
from .shamir import SHARE_BYTES

_PURPOSE = "seed shares"
Draw = Callable[[int], int]


def split_seeds(leg: SecureLeg, seeds: Mapping[str, bytes], draw: Draw) -> dict[str, bytes]:
    """Return each recipient's shares of a member's seeds, which are named after the cohort."""
    points = range(1, len(leg.cohort) + 1)
    by_seed = [shamir.split(seeds[n], points, leg.threshold, draw=draw) for n in leg.cohort]
    by_recipient = zip(*by_seed, strict=True)
    return {name: b"".join(shares) for name, shares in zip(leg.cohort, by_recipient, strict=True)}


def seal_shares(
    leg: SecureLeg,
    identity: Identity,
    shares: Mapping[str, bytes],
    *,
    name: str,
    sealing_keys: Mapping[str, bytes],
    member_key: bytes,
) -> dict[str, bytes]:
    """Sign each recipient's shares and seal them for it."""
    return {
        recipient: envelope.seal(
            data + identity.sign(_PURPOSE, _about(leg, name, recipient, data)),
            context=_context(leg, recipient),
            recipient_key=sealing_keys[recipient],
            member_key=member_key,
        )
        for recipient, data in shares.items()
    }


def open_shares(
    leg: SecureLeg,
    sealed: bytes,
    *,
    sender: str,
    recipient: str,
    sender_identity: bytes,
    key: SealingKey,
    member_key: bytes,
) -> dict[str, bytes]:
    """Return the sender's shares by the cohort's names, if it has signed them."""
    try:
        opened = envelope.open(
            sealed, context=_context(leg, recipient), key=key, member_key=member_key
        )
    except EnvelopeError as error:
        raise SecureSumError(f"the shares of {sender}: {error}") from error
    data, signature = opened[:-SIGNATURE_BYTES], opened[-SIGNATURE_BYTES:]
    about = _about(leg, sender, recipient, data)
    if len(data) != SHARE_BYTES * len(leg.cohort) or not verify(
        sender_identity, _PURPOSE, about, signature
    ):
        raise SecureSumError(f"{sender} did not sign its shares")
    pieces = [data[at : at + SHARE_BYTES] for at in range(0, len(data), SHARE_BYTES)]
    return dict(zip(leg.cohort, pieces, strict=True))


def _context(leg: SecureLeg, recipient: str) -> Context:
    # No experiment has a slash in its id: these envelopes never open as models, nor the reverse.
    return Context(f"{leg.experiment}/{_PURPOSE}", leg.generation, leg.leg, recipient)


def _about(leg: SecureLeg, sender: str, recipient: str, data: bytes) -> bytes:
    names = prefixed(sender.encode()) + prefixed(recipient.encode())
    return leg.digest + names + hashlib.sha256(data).digest()
