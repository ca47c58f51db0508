"""The audit log: one line per request, each with the hash of the previous line.

Every reply carries the signed head of the log. The coordinator echoes the highest head it has seen,
so an agent restored from an old backup notices that its state is older than the coordinator's view.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from operation.clock import Clock
from protocol.audit_head import AuditHead
from protocol.canonical import canonical_bytes
from protocol.sealing.keys import Identity

from .junk_count import JunkCount
from .store import Store

_GENESIS = bytes(32)
# Hashes stored beside the log, because a simulated hospital stores no log.
_RECENT = 64


class AuditLog:
    """The audit log of one hospital, in its store."""

    HEAD = "audit-head"

    def __init__(self, store: Store, identity: Identity, clock: Clock | None = None) -> None:
        self._store = store
        self._identity = identity
        self._junk = JunkCount(clock or Clock())

    def head(self) -> AuditHead:
        """Return the present head, signed."""
        sequence, (digest, *_) = self._recent()
        return AuditHead.signed(self._identity, sequence, digest)

    def append(self, request: dict[str, Any], reply: dict[str, Any]) -> AuditHead:
        """Add a line about a request and its reply, and return the new head.

        Refusals and repetitions beyond a limit per minute are counted for one line instead.
        """
        self.write_summaries()
        is_signed = "kind" in request  # else nothing of it was read
        if not self._junk.admits(str(reply["kind"]), reply.get("refusal"), is_signed=is_signed):
            return self.head()
        return self._write(request, reply)

    def write_summaries(self, *, everything: bool = False) -> None:
        """Add a line for each kind of reply that was only counted in a minute that has passed."""
        for (kind, code, _), count in self._junk.take_due(everything=everything):
            reply = {"kind": kind} | ({"refusal": code} if code else {})
            self._write({"count": count}, reply)

    def _write(self, request: dict[str, Any], reply: dict[str, Any]) -> AuditHead:
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
        hashes = b"".join((digest, *recent[:-1]))
        self._store.put(self.HEAD, (sequence + 1).to_bytes(8, "big") + hashes)
        return AuditHead.signed(self._identity, sequence + 1, digest)

    def is_behind(self, seen: AuditHead) -> bool:
        """Return whether the coordinator has seen a head that this log does not contain.

        The head may be later than the log's last line, or differ from the line of its number:
        refused requests add lines too, so a restored log can grow past the head that was seen.
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
        """Return the last line's number and the hashes of the latest lines, newest first."""
        stored = self._store.get(self.HEAD)
        if stored is None:
            return 0, [_GENESIS] * _RECENT
        digests = stored[8:]
        return int.from_bytes(stored[:8], "big"), [
            digests[start : start + 32] for start in range(0, len(digests), 32)
        ]


@dataclass(frozen=True)
class AuditCheck:
    """The result of verifying a log; `broken` is the number of the first bad line, if any."""

    entries: int
    broken: int | None
    reason: str


def verify_lines(lines: Iterable[bytes]) -> AuditCheck:
    """Check that no line was changed, removed, added or moved."""
    previous, number = _GENESIS, 0
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            number_in_line, previous_in_line = entry["sequence"], entry["previous"]
        except (ValueError, KeyError, TypeError):
            return AuditCheck(number, number, "can't be read")
        if number_in_line != number:
            return AuditCheck(number, number, f"has the number {number_in_line}: lines are missing")
        if previous_in_line != previous.hex():
            return AuditCheck(number, number, "does not contain the hash of the previous line")
        if _canonical(entry) != line:
            return AuditCheck(number, number, "was rewritten")
        previous = hashlib.sha256(line).digest()
    return AuditCheck(number, None, "")


def _canonical(entry: dict[str, Any]) -> bytes:
    return canonical_bytes(entry, ensure_ascii=False)
