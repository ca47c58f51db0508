"""The audit trail: one line per request, each carrying the hash of the line before.

The trail's head, signed, leaves with every reply. The coordinator echoes the highest it has seen,
so an agent restored from an old backup notices that its memory is older than the world's.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from protocol.audit import AuditHead
from protocol.keys import Identity

from .store import Store

_HEAD = "audit-head"
_GENESIS = bytes(32)


class AuditTrail:
    """Writes the trail of one hospital into its store."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity

    def head(self) -> AuditHead:
        """Return the signed head as it is now."""
        sequence, digest = self._position()
        return AuditHead.signed(self._identity, sequence, digest)

    def append(self, request: dict[str, Any], reply: dict[str, Any]) -> AuditHead:
        """Add a line about a request and its reply; return the new head."""
        sequence, previous = self._position()
        line = _canonical(
            {
                "sequence": sequence + 1,
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "previous": previous.hex(),
                "request": request,
                "reply": reply,
            }
        )
        digest = hashlib.sha256(line).digest()
        self._store.append_audit(line)
        self._store.put(_HEAD, (sequence + 1).to_bytes(8, "big") + digest)
        return AuditHead.signed(self._identity, sequence + 1, digest)

    def is_behind(self, seen: AuditHead) -> bool:
        """Say whether somebody has seen a later head of this very trail than it has now."""
        return seen.is_by(self._identity.public) and seen.sequence > self._position()[0]

    def _position(self) -> tuple[int, bytes]:
        stored = self._store.get(_HEAD)
        if stored is None:
            return 0, _GENESIS
        return int.from_bytes(stored[:8], "big"), stored[8:]


@dataclass(frozen=True)
class AuditCheck:
    """The result of verifying a trail; `broken` is the sequence number of the first bad line."""

    entries: int
    broken: int | None
    reason: str


def verify_lines(lines: Iterable[bytes]) -> AuditCheck:
    """Verify that no line was changed, removed, added or moved."""
    previous, number = _GENESIS, 0
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            told, linked = entry["sequence"], entry["previous"]
        except (ValueError, KeyError, TypeError):
            return AuditCheck(number, number, "is not readable")
        if told != number:
            return AuditCheck(number, number, f"carries the number {told}: lines are missing")
        if linked != previous.hex():
            return AuditCheck(number, number, "does not follow from the line before it")
        if _canonical(entry) != line:
            return AuditCheck(number, number, "was rewritten")
        previous = hashlib.sha256(line).digest()
    return AuditCheck(number, None, "")


def _canonical(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
