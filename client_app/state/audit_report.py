"""The audit log as a table, the models sent by recipient, and a check of the whole log."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from client_app.hospital_folder import HospitalFolder
from operation.foreign_text import printable
from operation.terminal import byte_size

from .audit_log import AuditCheck, AuditLog, verify_lines
from .sqlite_store import SqliteStore


def read_audit(folder: HospitalFolder) -> tuple[list[bytes], AuditCheck]:
    """Return the log's lines, and check them up to the head that was signed last."""
    if not folder.store_file.exists():
        return [], AuditCheck(0, None, "")
    store = SqliteStore.for_reading(folder.store_file)
    try:
        lines, head = store.audit_lines(), AuditLog(store, folder.identity()).head()
    finally:
        store.close()
    verdict = verify_lines(lines)
    if verdict.broken is None and head.sequence != len(lines):
        reason = f"is missing: the log once had {head.sequence} lines"
        return lines, AuditCheck(len(lines), len(lines) + 1, reason)
    if verdict.broken is None and lines and hashlib.sha256(lines[-1]).hexdigest() != head.digest:
        return lines, AuditCheck(len(lines), len(lines), "is not the line that was signed")
    return lines, verdict


def audit_table(lines: Sequence[bytes]) -> Table:
    """Return the log as a table; a line that can't be parsed is marked "not readable"."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("line", "time (UTC)", "request", "leg", "in", "reply", "to whom", "out"):
        right = heading in ("line", "leg", "in", "out")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    table.add_column("refused", overflow="fold")
    for number, line in enumerate(lines, start=1):
        entry = _parsed(line)
        if entry is None:
            table.add_row(str(number), Text("not readable"))
            continue
        request, reply = entry["request"], entry["reply"]
        table.add_row(
            str(number),
            # Names come from outside: Text keeps rich from reading markup in them.
            *(
                Text(_cell(value))
                for value in (
                    str(entry.get("time", ""))[:19].replace("T", " "),
                    _kind(request),
                    request.get("leg"),
                    _size(request.get("bytes")),
                    reply.get("kind"),
                    reply.get("recipient"),
                    _size(reply.get("bytes")),
                    reply.get("refusal"),
                )
            ),
        )
    return table


def models_sent(lines: Sequence[bytes]) -> dict[str, int]:
    """Count the models sent, by recipient: a hospital, or the coordinator, alone or in a sum.

    A masked model counts when the shares of its masks are revealed: before, nobody can read it.
    The closing sum is of figures, and no model.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        entry = _parsed(line)
        reply = entry["reply"] if entry is not None else {}
        if reply.get("kind") == "trained":
            counts[str(reply.get("recipient"))] += 1
        elif reply.get("kind") == "shares-revealed" and reply.get("content") != "figures":
            counts[f"{reply.get('recipient')}, as part of a {reply.get('readable')}"] += 1
    return dict(counts.most_common())


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    is_complete = isinstance(entry, dict) and all(
        isinstance(entry.get(part), dict) for part in ("request", "reply")
    )
    return entry if is_complete else None


def _kind(request: dict[str, Any]) -> object:
    if (count := request.get("count")) is not None:
        return f"{count} requests"  # too many for a line each
    return request.get("kind")


def _cell(value: object) -> str:
    return "–" if value is None or value == "" else printable(str(value))


def _size(count: object) -> str | None:
    return byte_size(count) if isinstance(count, int) else None
