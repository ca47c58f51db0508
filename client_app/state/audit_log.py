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

from protocol.audit_head import AuditHead
from protocol.canonical import canonical_bytes
from protocol.keys import Identity

from .store import Store

_GENESIS = bytes(32)
# How many hashes are at hand without the log, which a simulated hospital does not keep.
_RECENT = 64


class AuditTrail:
    """Writes the trail of one hospital into its store."""

    HEAD = "audit-head"

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity

    def head(self) -> AuditHead:
        """Return the signed head as it is now."""
        sequence, (digest, *_) = self._recent()
        return AuditHead.signed(self._identity, sequence, digest)

    def append(self, request: dict[str, Any], reply: dict[str, Any]) -> AuditHead:
        """Add a line about a request and its reply; return the new head."""
        sequence, recent = self._recent()
        line = _canonical(
            {
                "sequence": sequence + 1,
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "previous": recent[0].hex(),
                "request": request,
                "reply": reply,
            }
        )
        digest = hashlib.sha256(line).digest()
        self._store.append_audit(line)
        remembered = b"".join((digest, *recent[:-1]))
        self._store.put(self.HEAD, (sequence + 1).to_bytes(8, "big") + remembered)
        return AuditHead.signed(self._identity, sequence + 1, digest)

    def is_behind(self, seen: AuditHead) -> bool:
        """Say whether somebody has seen a head of this hospital's that this trail never had.

        A later one, or another in its place: whatever is refused adds a line too, and so would
        soon have hidden that lines are missing.
        """
        if not seen.is_by(self._identity.public):
            return False
        sequence, recent = self._recent()
        age = sequence - seen.sequence
        if age < len(recent):
            return age < 0 or recent[age].hex() != seen.digest
        line = self._store.audit_line(seen.sequence)
        return line is not None and hashlib.sha256(line).hexdigest() != seen.digest

    def _recent(self) -> tuple[int, list[bytes]]:
        """Return the last line's number and the hashes of the last lines, latest first."""
        stored = self._store.get(self.HEAD)
        if stored is None:
            return 0, [_GENESIS] * _RECENT
        digests = stored[8:]
        return int.from_bytes(stored[:8], "big"), [
            digests[start : start + 32] for start in range(0, len(digests), 32)
        ]


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
    return canonical_bytes(entry, ensure_ascii=False)
