"""The card that a hospital sends to the coordinator for enrolment."""

import json
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.canonical import canonical_bytes, first_problem
from protocol.sealing.keys import IDENTITY_BYTES, SIGNATURE_BYTES, Identity, is_identity, verify

from .announced_policy import AnnouncedPolicy
from .names import MemberName
from .roster import fingerprint

_PURPOSE = "card"
MAX_BYTES = 10_000


class CardError(ValueError):
    """The bytes are not a valid card."""


@dataclass(frozen=True)
class Card:
    """A hospital's name and public keys, and what it announces of its policy. Nothing is secret.

    The transport key is that of its SuperNode: it authenticates the connection and nothing else.
    The identity signs the whole card, so comparing the identity's fingerprint verifies the rest.
    Older cards announce no policy.
    """

    name: str
    identity: bytes
    transport: str  # one line in OpenSSH's format
    signature: bytes
    policy: AnnouncedPolicy | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.identity)

    @property
    def transport_pem(self) -> bytes:
        """The transport key in the format that Flower stores."""
        return _transport_key(self.transport).public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )

    @staticmethod
    def make(
        name: str, identity: Identity, transport: str, policy: AnnouncedPolicy | None = None
    ) -> "Card":
        signature = identity.sign(_PURPOSE, _content(name, identity.public, transport, policy))
        return Card(name, identity.public, transport, signature, policy)

    def has_keys_of(self, other: "Card") -> bool:
        """Return whether both cards are of one hospital and differ in the policy at most."""
        return (self.name, self.identity, self.transport) == (
            other.name,
            other.identity,
            other.transport,
        )

    def to_json(self) -> str:
        fields: dict[str, object] = {
            "name": self.name,
            "identity": self.identity.hex(),
            "transport": self.transport,
            "fingerprint": self.fingerprint,
            "signature": self.signature.hex(),
        }
        if self.policy is not None:
            fields["policy"] = self.policy.model_dump(mode="json")
        return json.dumps(fields, indent=2) + "\n"

    @staticmethod
    def from_json(data: bytes) -> "Card":
        """Parse a card and verify its signature; raise CardError if either fails."""
        if len(data) > MAX_BYTES:
            raise CardError(f"a card has at most {MAX_BYTES} bytes, got {len(data)}")
        try:
            form = _Form.model_validate_json(data)
        except ValidationError as error:
            raise CardError(first_problem(error, whole="card")) from error
        card = Card(
            form.name,
            bytes.fromhex(form.identity),
            form.transport,
            bytes.fromhex(form.signature),
            form.policy,
        )
        _transport_key(card.transport)
        if not is_identity(card.identity):
            raise CardError("identity: small-order (forgeable) public key")
        content = _content(card.name, card.identity, card.transport, card.policy)
        if not verify(card.identity, _PURPOSE, content, card.signature):
            raise CardError("not signed by the identity it names")
        if form.fingerprint != card.fingerprint:
            raise CardError(f"fingerprint: does not match the identity's, {card.fingerprint}")
        return card


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: MemberName
    identity: str = Field(pattern=rf"^[0-9a-f]{{{2 * IDENTITY_BYTES}}}$")
    transport: str = Field(pattern=r"^ecdsa-sha2-nistp384 [A-Za-z0-9+/=]+$", max_length=400)
    fingerprint: str
    signature: str = Field(pattern=rf"^[0-9a-f]{{{2 * SIGNATURE_BYTES}}}$")
    policy: AnnouncedPolicy | None = None


def _content(name: str, identity: bytes, transport: str, policy: AnnouncedPolicy | None) -> bytes:
    fields: dict[str, object] = {
        "identity": identity.hex(),
        "name": name,
        "transport": transport,
        "version": 1 if policy is None else 2,
    }
    if policy is not None:
        fields["policy"] = policy.model_dump(mode="json")
    return canonical_bytes(fields)


def _transport_key(line: str) -> EllipticCurvePublicKey:
    try:
        key = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CardError("transport: not a public key in OpenSSH's format") from error
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP384R1):
        raise CardError("transport: not an ECDSA key on the curve P-384")
    return key
