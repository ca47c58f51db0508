"""The envelope: a model sealed for one recipient, which the coordinator forwards and can't open.

An envelope is the output of HPKE (RFC 9180, base mode, single shot): encapsulated key, then
ciphertext. Its suite is fixed: ML-KEM-768 + X25519, HKDF-SHA256, AES-256-GCM. What binds it to its
place is HPKE's `info`: the context, followed by an HMAC of the context under the member key. So an
envelope opens only where and when it was meant to, and only a member can have made it; nothing in
it says which. docs/envelope.md has the format and test vectors.
"""

import hashlib
import hmac
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from .keys import SealingKey, sealing_public_key

OVERHEAD = KEM.MLKEM768_X25519.enc_length() + 16
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_VERSION = b"FedDC envelope v1"
GENERATION_BYTES = MEMBER_KEY_BYTES = 32


class EnvelopeError(ValueError):
    """The envelope does not open here: forged, altered, replayed or meant for another place."""


@dataclass(frozen=True)
class Context:
    """Where an envelope belongs: experiment, generation, sealing leg and recipient."""

    experiment: str
    generation: bytes
    leg: int
    recipient: str

    def __post_init__(self) -> None:
        if len(self.generation) != GENERATION_BYTES or not 0 <= self.leg < 2**64:
            raise EnvelopeError("no envelope belongs to such a generation or leg")

    def to_bytes(self) -> bytes:
        return b"".join(
            (
                _VERSION,
                _prefixed(self.experiment.encode()),
                _prefixed(self.generation),
                self.leg.to_bytes(8, "big"),
                _prefixed(self.recipient.encode()),
            )
        )


def seal(payload: bytes, *, context: Context, recipient_key: bytes, member_key: bytes) -> bytes:
    """Seal `payload` for the recipient that the context names and that owns `recipient_key`."""
    public = sealing_public_key(recipient_key)
    return _SUITE.encrypt(payload, public, info=_info(context, member_key))


def open(envelope: bytes, *, context: Context, key: SealingKey, member_key: bytes) -> bytes:
    """Open an envelope sealed for exactly this context by some member; else EnvelopeError."""
    if len(envelope) < OVERHEAD:
        raise EnvelopeError("too short to be an envelope")
    try:
        return _SUITE.decrypt(envelope, key.private, info=_info(context, member_key))
    except InvalidTag as error:
        raise EnvelopeError("does not open in this context") from error


def _info(context: Context, member_key: bytes) -> bytes:
    # Only shares travel without a member key, at leg 0: it is made of them.
    if len(member_key) != (MEMBER_KEY_BYTES if context.leg > 0 else 0):
        raise EnvelopeError("a member key is needed, of 32 bytes, from leg 1 on and only then")
    described = context.to_bytes()
    return described + hmac.digest(member_key, described, hashlib.sha256)


def _prefixed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
