"""`feddc hospital reset`: a stopped agent serves again without its experiments."""

from pathlib import Path

from typer.testing import CliRunner

from client_app.enrol.enrolment import initialise
from client_app.hospital_folder import HospitalFolder
from client_app.state.audit_log import AuditLog, verify_lines
from client_app.state.reset import reset_experiments
from client_app.state.sqlite_store import SqliteStore
from client_app.state.store import STOPPED
from operation.cli import app
from protocol.sealing.keys import Identity


def test_reset_destroys_keys_and_the_stop_but_keeps_the_audit_log(tmp_path: Path) -> None:
    identity = Identity.generate()
    store = SqliteStore(tmp_path / "store.db")
    with store.transaction():
        AuditLog(store, identity).append({"kind": "set-up"}, {"kind": "announcement"})
        store.put("e1/sealing-key", b"secret key material")
        store.put(STOPPED, b"line 9 was seen")

    reset_experiments(store, identity)

    assert store.get("e1/sealing-key") is None
    assert store.get(STOPPED) is None
    lines = list(store.audit_lines())
    check = verify_lines(lines)
    assert (check.entries, check.broken) == (2, None)
    assert b'"kind":"reset"' in lines[-1]
    assert AuditLog(store, identity).head().sequence == 2
    store.close()
    assert b"secret key material" not in (tmp_path / "store.db").read_bytes()


def test_check_names_reset_which_lets_a_stopped_agent_serve_again(tmp_path: Path) -> None:
    folder = HospitalFolder(tmp_path / "hospital")
    initialise(folder, "St Mary", "")
    store = SqliteStore(folder.store_file)
    with store.transaction():
        store.put(STOPPED, b"line 9 was seen")
    store.close()
    run = CliRunner().invoke

    found = run(app, ["hospital", "check", "--folder", str(folder.path)])
    assert "✗ store: restored from an old backup (line 9 was seen)" in found.stdout
    assert "`feddc hospital reset`" in found.stdout
    assert run(app, ["hospital", "reset", "--yes", "--folder", str(folder.path)]).exit_code == 0
    found = run(app, ["hospital", "check", "--folder", str(folder.path)])
    assert "✓ store: up to date" in found.stdout


def test_the_former_command_is_refused_with_the_new_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["hospital", "forget", "--yes", "--folder", str(tmp_path)])

    assert done.exit_code == 2
    assert "forget was renamed: use `feddc hospital reset`" in done.stderr
