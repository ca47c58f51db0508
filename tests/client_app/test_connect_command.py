"""`feddc hospital connect`: what is missing is named before anything is started."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from client_app.hospital_folder import HospitalFolder
from protocol.address import Address
from protocol.study.connection import Connection
from server_app.study import certificates
from tests.client_app.commands import feddc
from tests.client_app.conftest import ROOT, Enrolled
from tests.processes import descendants, free_port, is_alive, wait_until


def test_the_former_option_for_a_socket_is_refused_with_the_new_one(tmp_path: Path) -> None:
    done = feddc("connect", "--folder", tmp_path, "--through", tmp_path / "exit.sock")

    assert done.exit_code == 2
    assert "--through was renamed: use --via-socket" in done.stderr


MISSING: dict[str, tuple[Callable[[HospitalFolder], object], str]] = {
    "no address": (lambda folder: None, "run `feddc hospital join` with the coordinator.json"),
    "a cut-off address": (
        lambda folder: folder.connection_file.write_text('{"address":'),
        "run `feddc hospital join` again",
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_without_the_coordinators_address_it_says_how_to_get_it(
    case: str, enrolled: Enrolled
) -> None:
    change, remedy = MISSING[case]
    change(enrolled.folder)

    done = feddc("connect", "--folder", enrolled.folder.path)

    assert done.exit_code == 2
    assert f"feddc: {enrolled.folder.connection_file}: " in done.stderr
    assert remedy in done.stderr


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("state", ["runs", "hangs"])
def test_all_its_processes_end_when_connect_is_killed(
    state: str, enrolled: Enrolled, tmp_path: Path
) -> None:
    certificates.make_authority(tmp_path, "hearts")
    authority = (tmp_path / "ca.crt").read_text()
    nowhere = Address("127.0.0.1", free_port())
    enrolled.folder.save_connection(Connection.make(nowhere, authority, enrolled.coordinator))
    command = [sys.executable, "-m", "operation.cli", "hospital", "connect"]
    command += ["--folder", str(enrolled.folder.path), "--via-socket", str(tmp_path / "exit.sock")]
    with (tmp_path / "log").open("wb") as log:
        connect = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
    try:
        wait_until(lambda: "Starting Flower SuperNode" in (tmp_path / "log").read_text())
        started = descendants(connect.pid)
        assert len(started) >= 3  # forwarder, runner, SuperNode
        if state == "hangs":
            # One process, or two while it forks a program of its own.
            supernode = [pid for pid in started if "flower-supernode" in program(pid)]
            assert supernode
            for pid in supernode:
                os.kill(pid, signal.SIGSTOP)
    finally:
        connect.kill()
        connect.wait()

    wait_until(lambda: not any(map(is_alive, started)))


def program(pid: int) -> str:
    """Return the file that Python runs in a process, or "" if it runs something else."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:  # it has ended
        return ""
    return words[1] if len(words) > 1 else ""
