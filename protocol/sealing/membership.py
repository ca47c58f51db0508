"""Set up an experiment's keys: announcements, key shares, and the member key derived from them.

Each hospital announces a fresh sealing key, signed by its identity. It then seals a random key
share for every other hospital. The member key is derived from all key shares, the roster and the
digest of the announcement list: a hospital that received another list derives another key, and no
envelope opens. The coordinator forwards all messages and learns none of the keys.
"""

import hashlib
import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from protocol.canonical import prefixed
from protocol.study.roster import Roster

from . import envelope
from .envelope import Context, EnvelopeError
from .keys import (
    SEALING_KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    InvalidKey,
    SealingKey,
    sealing_public_key,
    verify,
)

KEY_SHARE_BYTES = 32
PAIR_SECRET_BYTES = 33
SEALED_KEY_SHARE_BYTES = KEY_SHARE_BYTES + PAIR_SECRET_BYTES + SIGNATURE_BYTES + envelope.OVERHEAD
_ANNOUNCEMENT, _KEY_SHARE = "announcement", "key share"
# Key shares travel before the member key exists. They are sealed at leg 0; models start at leg 1.
_KEY_SHARE_LEG, _NO_MEMBER_KEY = 0, b""


class MembershipError(ValueError):
    """An announcement or a key share does not match the pinned roster."""


@dataclass(frozen=True)
class OpenedKeyShare:
    """What one member sealed for another.

    `key_share` is the same for all recipients. `pair_secret` is for this one: a pair seed, from
    which both derive the key of their masks, and one byte that says which figures the sender adds
    to secure sums (see `protocol.secure_sum`).
    """

    key_share: bytes
    pair_secret: bytes

    def to_bytes(self) -> bytes:
        return self.key_share + self.pair_secret


@dataclass(frozen=True)
class Announced:
    """One member's announcement for one experiment."""

    name: str
    sealing_key: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        return self.sealing_key + self.signature

    @staticmethod
    def from_bytes(name: str, data: bytes) -> "Announced":
        if len(data) != SEALING_KEY_BYTES + SIGNATURE_BYTES:
            raise MembershipError(f"{name}: invalid announcement of {len(data)} bytes")
        return Announced(name, data[:SEALING_KEY_BYTES], data[SEALING_KEY_BYTES:])


def announce(
    identity: Identity, key: SealingKey, *, name: str, experiment: str, roster: Roster
) -> Announced:
    """Announce a fresh sealing key, bound to the experiment and the roster."""
    statement = _statement(name, key.public, experiment, roster)
    return Announced(name, key.public, identity.sign(_ANNOUNCEMENT, statement))


def check_announcements(
    announcements: Sequence[Announced],
    *,
    experiment: str,
    roster: Roster,
    least: int | None = None,
) -> None:
    """Raise MembershipError unless there is one valid announcement per member, in roster order.

    With `least`, members may be missing, as long as at least that many remain.
    """
    names = tuple(announced.name for announced in announcements)
    expected = roster.names
    if least is not None:
        expected = tuple(name for name in roster.names if name in names)
    if names != expected or (least is not None and len(names) < least):
        raise MembershipError("the announcements do not match the roster's members")
    if len({announced.sealing_key for announced in announcements}) != len(announcements):
        raise MembershipError("two members announced the same key")
    for announced in announcements:
        identity = roster.identity_of(announced.name) or b""
        statement = _statement(announced.name, announced.sealing_key, experiment, roster)
        if not verify(identity, _ANNOUNCEMENT, statement, announced.signature):
            raise MembershipError(f"{announced.name} did not sign its announcement")
        try:
            sealing_public_key(announced.sealing_key)
        except InvalidKey as error:
            raise MembershipError(f"{announced.name}: {error}") from error


def generation_digest(
    announcements: Sequence[Announced], *, experiment: str, roster: Roster
) -> bytes:
    """Return the digest of a generation's keys: it binds envelopes to the announcement list."""
    digest = hashlib.sha256(b"FedDC generation v1" + roster.digest + prefixed(experiment.encode()))
    for announced in announcements:
        digest.update(prefixed(announced.name.encode()) + prefixed(announced.to_bytes()))
    return digest.digest()


def agreed_generation(
    announcements: Sequence[Announced], *, experiment: str, descriptor: bytes, roster: Roster
) -> bytes:
    """Return the digest of a generation's keys, bound to the descriptor too.

    Hospitals that were shown different descriptors derive different keys.
    """
    terms = f"{experiment}/{hashlib.sha256(descriptor).hexdigest()}"
    return generation_digest(announcements, experiment=terms, roster=roster)


def seal_key_shares(
    key_share: bytes,
    pair_secrets: Mapping[str, bytes],
    identity: Identity,
    *,
    name: str,
    experiment: str,
    generation: bytes,
    announcements: Sequence[Announced],
) -> dict[str, bytes]:
    """Sign a key share, and for each other member a pair secret, and seal them for it."""
    _check_length(key_share)
    sealed = {}
    for announced in announcements:
        if announced.name == name:
            continue
        content = OpenedKeyShare(key_share, pair_secrets[announced.name]).to_bytes()
        statement = _key_share_statement(name, announced.name, content, experiment, generation)
        sealed[announced.name] = envelope.seal(
            content + identity.sign(_KEY_SHARE, statement),
            context=Context(experiment, generation, _KEY_SHARE_LEG, announced.name),
            recipient_key=announced.sealing_key,
            member_key=_NO_MEMBER_KEY,
        )
    return sealed


def open_key_shares(
    sealed: Mapping[str, bytes],
    key: SealingKey,
    *,
    name: str,
    experiment: str,
    generation: bytes,
    roster: Roster,
    members: Collection[str] | None = None,
) -> dict[str, OpenedKeyShare]:
    """Open the key shares that every other member sealed for `name` and verify their signatures.

    `members` are the participants, if not the whole roster takes part.
    """
    if set(sealed) != set(roster.names if members is None else members) - {name}:
        raise MembershipError("there must be one key share of every other member")
    context = Context(experiment, generation, _KEY_SHARE_LEG, name)
    key_shares = {}
    for sender, data in sealed.items():
        try:
            opened = envelope.open(data, context=context, key=key, member_key=_NO_MEMBER_KEY)
        except EnvelopeError as error:
            raise MembershipError(f"the key share of {sender} {error}") from error
        content, signature = opened[:-SIGNATURE_BYTES], opened[-SIGNATURE_BYTES:]
        statement = _key_share_statement(sender, name, content, experiment, generation)
        if len(content) != KEY_SHARE_BYTES + PAIR_SECRET_BYTES or not verify(
            roster.identity_of(sender) or b"", _KEY_SHARE, statement, signature
        ):
            raise MembershipError(f"{sender} did not sign its key share")
        key_shares[sender] = OpenedKeyShare(content[:KEY_SHARE_BYTES], content[KEY_SHARE_BYTES:])
    return key_shares


def derive_member_key(
    key_shares: Mapping[str, bytes],
    *,
    roster: Roster,
    generation: bytes,
    members: Collection[str] | None = None,
) -> bytes:
    """Derive the key that only members have: HKDF over every member's key share.

    `members` are the participants, if not the whole roster takes part.
    """
    if set(key_shares) != set(roster.names if members is None else members):
        raise MembershipError("there must be one key share of every member")
    for key_share in key_shares.values():
        _check_length(key_share)
    secret = b"".join(key_shares[name] for name in roster.names if name in key_shares)
    kdf = HKDF(SHA256(), length=32, salt=roster.digest, info=b"FedDC member key v1" + generation)
    return kdf.derive(secret)


def confirmation(member_key: bytes) -> bytes:
    """Return a tag that is equal where the same member key was derived; it does not reveal it."""
    return hmac.digest(member_key, b"FedDC member key confirmation v1", hashlib.sha256)


def _check_length(key_share: bytes) -> None:
    if len(key_share) != KEY_SHARE_BYTES:
        raise MembershipError(f"a key share has {KEY_SHARE_BYTES} bytes, got {len(key_share)}")


def _statement(name: str, sealing_key: bytes, experiment: str, roster: Roster) -> bytes:
    parts = (name.encode(), experiment.encode(), roster.digest, sealing_key)
    return b"".join(prefixed(part) for part in parts)


def _key_share_statement(
    name: str, recipient: str, content: bytes, experiment: str, generation: bytes
) -> bytes:
    parts = (name.encode(), recipient.encode(), experiment.encode(), generation, content)
    return b"".join(prefixed(part) for part in parts)
