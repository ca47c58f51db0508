"""A stopped agent serves again when its operator has it forget all experiments."""

from pathlib import Path

from typer.testing import CliRunner

from client_app.enrol.enrolment import initialise
from client_app.hospital_folder import HospitalFolder
from client_app.state.audit_log import AuditTrail, verify_lines
from client_app.state.reset import forget_experiments
from client_app.state.sqlite_store import SqliteStore
from client_app.state.store import STOPPED
from operation.cli import app
from protocol.keys import Identity


def test_forgetting_destroys_keys_and_the_stop_but_keeps_the_audit_log(tmp_path: Path) -> None:
    identity = Identity.generate()
    store = SqliteStore(tmp_path / "store.db")
    with store.transaction():
        AuditTrail(store, identity).append({"kind": "set-up"}, {"kind": "announcement"})
        store.put("e1/sealing-key", b"secret key material")
        store.put(STOPPED, b"line 9 was seen")

    forget_experiments(store, identity)

    assert store.get("e1/sealing-key") is None
    assert store.get(STOPPED) is None
    lines = list(store.audit_lines())
    check = verify_lines(lines)
    assert (check.entries, check.broken) == (2, None)
    assert b'"forget"' in lines[-1]
    assert AuditTrail(store, identity).head().sequence == 2
    store.close()
    assert b"secret key material" not in (tmp_path / "store.db").read_bytes()


def test_check_and_forget_lead_a_stopped_agent_back(tmp_path: Path) -> None:
    folder = HospitalFolder(tmp_path / "hospital")
    initialise(folder, "St Mary", "")
    store = SqliteStore(folder.store_file)
    with store.transaction():
        store.put(STOPPED, b"line 9 was seen")
    store.close()
    run = CliRunner().invoke

    found = run(app, ["hospital", "check", "--folder", str(folder.path)])
    assert "✗ memory: older than what the coordinator has seen" in found.stdout
    assert run(app, ["hospital", "forget", "--yes", "--folder", str(folder.path)]).exit_code == 0
    found = run(app, ["hospital", "check", "--folder", str(folder.path)])
    assert "✓ memory: in order" in found.stdout
