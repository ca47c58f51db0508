"""Envelopes: models sealed for one recipient, which the coordinator forwards and cannot open.

An envelope is the output of HPKE (RFC 9180, base mode, single shot): encapsulated key, then
ciphertext. The suite is fixed: ML-KEM-768 + X25519, HKDF-SHA256, AES-256-GCM. HPKE's `info` binds
an envelope to its context: it is the context, followed by an HMAC of the context under the member
key. An envelope therefore opens only in its context, and only a member can have sealed it; it does
not reveal which member. docs/envelope.md describes the format and has test vectors.
"""

import hashlib
import hmac
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from protocol.canonical import prefixed

from .keys import SealingKey, sealing_public_key

OVERHEAD = KEM.MLKEM768_X25519.enc_length() + 16
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_VERSION = b"FedDC envelope v1"
GENERATION_BYTES = MEMBER_KEY_BYTES = 32


class EnvelopeError(ValueError):
    """The envelope does not open: forged, altered, replayed or sealed for another context."""


@dataclass(frozen=True)
class Context:
    """What an envelope is bound to: experiment, generation, the leg it was sealed in, recipient."""

    experiment: str
    generation: bytes
    leg: int
    recipient: str

    def __post_init__(self) -> None:
        if len(self.generation) != GENERATION_BYTES or not 0 <= self.leg < 2**64:
            raise EnvelopeError(
                f"invalid generation digest of {len(self.generation)} bytes or leg {self.leg}"
            )

    def to_bytes(self) -> bytes:
        return b"".join(
            (
                _VERSION,
                prefixed(self.experiment.encode()),
                prefixed(self.generation),
                self.leg.to_bytes(8, "big"),
                prefixed(self.recipient.encode()),
            )
        )


def seal(payload: bytes, *, context: Context, recipient_key: bytes, member_key: bytes) -> bytes:
    """Seal `payload` for the context's recipient, whose public sealing key is `recipient_key`."""
    public = sealing_public_key(recipient_key)
    return _SUITE.encrypt(payload, public, info=_info(context, member_key))


def open(envelope: bytes, *, context: Context, key: SealingKey, member_key: bytes) -> bytes:
    """Open an envelope that a member sealed for exactly this context; else raise EnvelopeError."""
    if len(envelope) < OVERHEAD:
        raise EnvelopeError("too short to be an envelope")
    try:
        return _SUITE.decrypt(envelope, key.private, info=_info(context, member_key))
    except InvalidTag as error:
        raise EnvelopeError("does not open in this context") from error


def _info(context: Context, member_key: bytes) -> bytes:
    # Key shares are sealed at leg 0, without a member key, because it is derived from them.
    if len(member_key) != (MEMBER_KEY_BYTES if context.leg > 0 else 0):
        raise EnvelopeError("a member key of 32 bytes is required from leg 1 on, and none at leg 0")
    described = context.to_bytes()
    return described + hmac.digest(member_key, described, hashlib.sha256)
