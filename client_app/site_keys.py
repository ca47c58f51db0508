"""Keys of a site whose own ClientApp seals hand-overs: its private file and the pinned roster.

Each site makes a private key and hands its card to the others. One of the sites, not the
coordinator, makes the roster of all cards, with a member key that only members know. The roster
reaches every site outside of Flower, over a channel that the sites trust.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operation import files
from protocol.canonical import canonical_bytes
from protocol.sealing.envelope import MEMBER_KEY_BYTES
from protocol.sealing.keys import InvalidKey, SealingKey, sealing_public_key
from protocol.study.names import check_member_name, twin_key

_VERSION = 1


class SiteKeyError(ValueError):
    """A site's key file, card or roster can't be used; the message says why."""


@dataclass(frozen=True)
class Site:
    """What a site needs to open and seal: its name and key, the members' keys, the member key."""

    name: str
    key: SealingKey = field(repr=False)
    members: dict[str, bytes]
    member_key: bytes = field(repr=False)
    generation: bytes  # digest of the roster: other rosters' envelopes do not open

    @staticmethod
    def load(key_file: Path, roster_file: Path) -> "Site":
        own, roster = _read(key_file, "key"), _read(roster_file, "roster")
        try:
            key = SealingKey.from_bytes(bytes.fromhex(own["sealing-key"]))
            members = {name: bytes.fromhex(k) for name, k in roster["members"].items()}
            for public in members.values():
                sealing_public_key(public)
            member_key = bytes.fromhex(roster["member-key"])
        except (KeyError, TypeError, AttributeError, ValueError, InvalidKey) as error:
            raise SiteKeyError(f"{key_file} or {roster_file} is damaged: {error}") from error
        if len(member_key) != MEMBER_KEY_BYTES:
            raise SiteKeyError(f"{roster_file}: the member key has {len(member_key)} bytes")
        if members.get(own["name"]) != key.public:
            raise SiteKeyError(
                f"{roster_file} does not list {own['name']!r} with the key of {key_file}: "
                "pin the roster that was made with this site's card"
            )
        digest = hashlib.sha256(canonical_bytes(roster)).digest()
        return Site(own["name"], key, members, member_key, digest)


def make_key(name: str, folder: Path) -> tuple[Path, Path]:
    """Make a site's private key; return the paths of the key file and of the card to hand out."""
    name = _checked(name)
    key = SealingKey.generate()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    private, card = folder / f"{name}.key.json", folder / f"{name}.card.json"
    if private.exists():
        raise SiteKeyError(f"{private} exists: a key is not overwritten")
    _write(private, {"name": name, "sealing-key": key.to_bytes().hex()}, mode=0o600)
    _write(card, {"name": name, "public-key": key.public.hex()}, mode=0o644)
    return private, card


def make_roster(cards: Sequence[Path], path: Path) -> list[str]:
    """Make the roster of all sites' cards, secret among them; return their names."""
    members: dict[str, str] = {}
    for card in cards:
        content = _read(card, "card")
        try:
            name, public = _checked(str(content["name"])), content["public-key"]
            sealing_public_key(bytes.fromhex(public))
        except (KeyError, TypeError, ValueError, InvalidKey) as error:
            raise SiteKeyError(f"{card} is no card: {error}") from error
        if twin_key(name) in map(twin_key, members):
            raise SiteKeyError(f"two cards name {name!r}: give each site a name of its own")
        members[name] = public
    if len(members) < 2:
        raise SiteKeyError(f"a roster has at least two sites, got {len(members)}")
    if path.exists():
        raise SiteKeyError(f"{path} exists: choose another file for a new roster")
    member_key = secrets.token_hex(MEMBER_KEY_BYTES)
    _write(path, {"members": members, "member-key": member_key}, mode=0o600)
    return sorted(members)


def _checked(name: str) -> str:
    try:
        return check_member_name(name)
    except ValueError as error:
        raise SiteKeyError(f"a site's name {error}") from error


def _read(path: Path, what: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise SiteKeyError(f"{path} is no {what}: {error}") from error
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise SiteKeyError(f"{path} is no {what} of this version")
    return content


def _write(path: Path, content: dict[str, Any], *, mode: int) -> None:
    text = json.dumps({"version": _VERSION, **content}, indent=2)
    files.write_new(path, text.encode(), mode=mode)
