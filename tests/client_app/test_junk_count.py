"""The audit log of a hospital under a flood: every answer counted, the disk not filled."""

import io
import json
from pathlib import Path

from client_app.state.audit_log import AuditLog, verify_lines
from client_app.state.audit_report import audit_table
from client_app.state.junk_count import JunkCount
from client_app.state.sqlite_store import SqliteStore
from operation import terminal
from protocol.sealing.keys import Identity
from tests.fake_clock import FakeClock

REFUSAL = {"kind": "refusal", "refusal": "malformed"}


def test_a_minute_has_twenty_lines_and_then_a_count() -> None:
    clock = FakeClock()
    junk = JunkCount(clock)
    admitted = [junk.admits("refusal", "malformed", is_signed=False) for _ in range(1000)]
    assert admitted == [True] * 20 + [False] * 980
    assert list(junk.take_due()) == []
    clock.time += 60
    assert list(junk.take_due()) == [(("refusal", "malformed", False), 980)]


def test_while_a_flood_lasts_a_minute_has_one_line() -> None:
    clock = FakeClock()
    junk = JunkCount(clock)
    lines = 0
    for _ in range(10):
        lines += sum(junk.admits("refusal", "malformed", is_signed=False) for _ in range(500))
        clock.time += 60
        lines += len(list(junk.take_due()))
    assert lines == 20 + 10
    clock.time += 60
    assert list(junk.take_due()) == []
    # After a quiet minute each has its line again.
    assert junk.admits("refusal", "malformed", is_signed=False)


def test_what_the_coordinator_signed_has_more_lines_but_what_is_repeated_has_not() -> None:
    junk = JunkCount(FakeClock())
    refused = [junk.admits("refusal", "old-leg", is_signed=True) for _ in range(1000)]
    repeated = [junk.admits("repeated", None, is_signed=True) for _ in range(1000)]
    assert (sum(refused), sum(repeated)) == (120, 20)


def test_models_and_keys_always_have_a_line_of_their_own() -> None:
    junk = JunkCount(FakeClock())
    for kind in ("trained", "announcement", "key-shares", "ready", "closed"):
        assert all(junk.admits(kind, None, is_signed=True) for _ in range(1000))


def test_one_kind_of_junk_does_not_hide_another() -> None:
    junk = JunkCount(FakeClock())
    for _ in range(1000):
        junk.admits("refusal", "malformed", is_signed=False)
    assert junk.admits("refusal", "against-policy", is_signed=False)


def test_the_log_stays_whole_and_every_request_is_counted(tmp_path: Path) -> None:
    """Before, junk filled 1.3 GB a day: a line for each."""
    clock, store = FakeClock(), SqliteStore(tmp_path / "memory.sqlite")
    log = AuditLog(store, Identity.generate(), clock)
    for _ in range(30):
        for _ in range(100):
            head = log.append({"digest": "0" * 64, "bytes": 10}, REFUSAL)
        clock.time += 60
    log.append({"kind": "train-leg"}, {"kind": "trained", "recipient": "Mercy"})
    lines = store.audit_lines()
    assert verify_lines(lines).broken is None
    assert len(lines) == 20 + 30 + 1
    assert head.sequence == 20 + 29
    requests = [json.loads(line)["request"] for line in lines[:-1]]
    assert sum(request.get("count", 1) for request in requests) == 3000
    store.close()


def test_what_was_only_counted_is_written_when_the_agent_ends(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "memory.sqlite")
    log = AuditLog(store, Identity.generate(), FakeClock())
    for _ in range(25):
        log.append({}, REFUSAL)
    log.write_summaries(everything=True)
    assert json.loads(store.audit_lines()[-1])["request"] == {"count": 5}
    console = terminal.console()
    console.file = io.StringIO()
    console.print(audit_table(store.audit_lines()))
    assert console.file.getvalue().splitlines()[-1].split()[3:5] == ["5", "requests"]
    store.close()
