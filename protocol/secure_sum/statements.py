"""What members sign in a secure sum: that they sent a vector, and who has sent one."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.canonical import prefixed
from protocol.sealing.keys import SIGNATURE_BYTES, Identity, verify

from .secure_leg import SecureLeg, SecureSumError

DIGEST_BYTES = 32
STATEMENT_BYTES = DIGEST_BYTES + SIGNATURE_BYTES
_VECTOR, _SURVIVORS = "masked vector", "survivors"


@dataclass(frozen=True)
class Statement:
    """A member's signed statement that it sent the masked vector with this digest."""

    vector: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        return self.vector + self.signature

    @staticmethod
    def from_bytes(data: bytes) -> "Statement":
        if len(data) != STATEMENT_BYTES:
            raise SecureSumError(f"invalid statement of {len(data)} bytes")
        return Statement(data[:DIGEST_BYTES], data[DIGEST_BYTES:])


def make_statement(
    leg: SecureLeg, identity: Identity, *, name: str, aggregate: bytes, vector: bytes
) -> Statement:
    """Sign the digest of a vector, and the digest of the aggregate that its training began from."""
    return Statement(vector, identity.sign(_VECTOR, _about_vector(leg, name, aggregate, vector)))


def check_statements(
    leg: SecureLeg,
    statements: Mapping[str, Statement],
    *,
    aggregate: bytes,
    identities: Mapping[str, bytes],
) -> None:
    """Refuse survivors that are too few, or did not sign this leg, cohort and aggregate."""
    leg.check_survivors(statements)
    for name, statement in statements.items():
        identity = identities.get(name, b"")
        check_statement(leg, name, statement, aggregate=aggregate, identity=identity)


def check_statement(
    leg: SecureLeg, name: str, statement: Statement, *, aggregate: bytes, identity: bytes
) -> None:
    """Refuse a statement that a member did not sign for this leg, cohort and aggregate."""
    about = _about_vector(leg, name, aggregate, statement.vector)
    if not verify(identity, _VECTOR, about, statement.signature):
        raise SecureSumError(f"{name} did not sign this leg, cohort and aggregate")


def sign_survivors(
    leg: SecureLeg, identity: Identity, statements: Mapping[str, Statement]
) -> bytes:
    """Sign the survivors and their vectors."""
    return identity.sign(_SURVIVORS, survivors_digest(leg, statements))


def check_survivor_signatures(
    leg: SecureLeg,
    statements: Mapping[str, Statement],
    signatures: Mapping[str, bytes],
    *,
    identities: Mapping[str, bytes],
) -> None:
    """Refuse unless t survivors have signed these very survivors."""
    if not set(signatures) <= set(statements) or len(signatures) < leg.threshold:
        raise SecureSumError(f"{len(signatures)} signatures of survivors, needed {leg.threshold}")
    for name, signature in signatures.items():
        identity = identities.get(name, b"")
        check_survivor_signature(leg, statements, name, signature, identity=identity)


def check_survivor_signature(
    leg: SecureLeg,
    statements: Mapping[str, Statement],
    name: str,
    signature: bytes,
    *,
    identity: bytes,
) -> None:
    """Refuse a signature that is not this member's over these survivors."""
    if not verify(identity, _SURVIVORS, survivors_digest(leg, statements), signature):
        raise SecureSumError(f"{name} did not sign these survivors")


def survivors_digest(leg: SecureLeg, statements: Mapping[str, Statement]) -> bytes:
    """Return the digest of S and its vectors, which t members must have signed alike."""
    digest = hashlib.sha256(b"FedDC survivors v1" + leg.digest)
    for name in sorted(statements):
        digest.update(prefixed(name.encode()) + statements[name].vector)
    return digest.digest()


def _about_vector(leg: SecureLeg, name: str, aggregate: bytes, vector: bytes) -> bytes:
    return leg.digest + prefixed(name.encode()) + prefixed(aggregate) + vector
