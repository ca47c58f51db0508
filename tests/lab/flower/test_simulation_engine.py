"""Flower's engine as our own children: what is packed, what ends a run, and what is left of it."""

import io
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.flower import simulation_engine
from lab.flower.simulation_engine import EngineError, _SimulationProcess, run_app
from operation.flower.control_api import pack
from operation.processes import process_group
from tests.fake_clock import FakeClock
from tests.processes import descendants, listening_addresses, wait_until

pytestmark = pytest.mark.timing

STUB_APP = Path(__file__).parent / "stub_app"
# Deaf to everything but SIGKILL, and with a child in a session of its own, as Ray's daemons are.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
os.write(1, b"ready\\n")  # at once: two processes share the pipe
time.sleep(600)
"""


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    monkeypatch.setenv("PYTHONPATH", str(STUB_APP), prepend=os.pathsep)
    monkeypatch.setenv("STUB", "waits")

    def run(folder: Path, watch: Callable[[], object]) -> object:
        return run_app(
            server_app="stub_server:app",
            client_app="stub_client:app",
            config={"run-dir": str(folder), "hospitals": 2},
            nodes=2,
            cpus=1,
            log_path=folder / "flower.log",
            watch=watch,
            verbose=False,
        )

    return run


@pytest.fixture
def stubborn() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: dict[str, subprocess.Popen[str]] = {}

    def start(home: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", STUBBORN, STUBBORN],
            env=os.environ | {"FLWR_HOME": home},
            stdout=subprocess.PIPE,
            text=True,
        )
        started[home] = process
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        return process

    yield start
    for home, process in started.items():
        process_group.end_all(Path(home))
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_the_bundle_holds_the_settings_and_no_code() -> None:
    config = {
        "run-dir": 'a "b"\n\\ß\x7f',
        "rounds": 3,
        "momentum": 1.0,
        "seed": 2**63 - 1,
        "sealed": True,
    }

    bundle = pack(server_app="a.b:app", client_app="c.d:app", config=config)

    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        assert sorted(archive.namelist()) == [".info/CONTENT", "pyproject.toml"]
        app = tomllib.loads(archive.read("pyproject.toml").decode())["tool"]["flwr"]["app"]
    assert app["config"] == config
    assert app["components"] == {"serverapp": "a.b:app", "clientapp": "c.d:app"}


def test_ending_a_simulation_kills_its_daemons_and_nobody_elses(
    stubborn: Callable[[str], subprocess.Popen[str]],
) -> None:
    with process_group.new_home() as home:
        ours, longer_name, other = stubborn(str(home)), stubborn(f"{home}-2"), stubborn("/other")
        assert len(process_group.command_lines(home)) == 2
        (home / "file").write_text("x")

    assert ours.wait(timeout=120) == -signal.SIGKILL
    assert process_group.command_lines(home) == []
    assert not home.exists()
    assert longer_name.poll() is None
    assert other.poll() is None
    assert len(process_group.command_lines(Path("/other"))) == 2


def test_the_folder_leaves_room_for_rays_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    with process_group.new_home() as home:
        session = "ray/session_2000-01-01_00-00-00_000000_4194304/sockets/plasma_store"
        assert len(os.fsencode(home / session)) <= 107
        assert home.stat().st_mode & 0o077 == 0  # other users can't read what is in it


def test_a_superlink_that_dies_ends_the_run_with_an_error(
    tmp_path: Path, stub: Callable[..., object]
) -> None:
    with pytest.raises(EngineError, match=r"SuperLink ended with exit code -9"):
        stub(tmp_path, lambda: _kill_child("operation.flower.simulation_superlink"))

    assert "Created run" in (tmp_path / "flower.log").read_text()


# What another user can send: a first question to Ray's store of everything that it runs.
STRANGER = """
import sys
from ray._raylet import GcsClient
print(GcsClient(address=sys.argv[1]).internal_kv_keys(b"", None))
"""


@pytest.mark.slow
@pytest.mark.skipif(not process_group.VISIBLE, reason="Linux shows who listens where")
def test_flower_and_ray_listen_on_loopback_and_turn_strangers_away(
    tmp_path: Path, stub: Callable[..., object]
) -> None:
    listening: dict[str, set[str]] = {}
    stranger: list[subprocess.CompletedProcess[str]] = []

    def look() -> None:
        metrics = tmp_path / "metrics.jsonl"
        if not metrics.exists() or "evaluation" not in metrics.read_text():
            return  # not all actors have been asked yet
        listening.update(listening_addresses(descendants(os.getpid())))
        (gcs,) = [address for address in listening if "gcs_server" in listening[address]]
        ours = {name for name in os.environ if name.startswith("RAY_AUTH")}
        stranger.append(
            subprocess.run(
                [sys.executable, "-c", STRANGER, gcs.replace("::ffff:", "")],
                env={key: value for key, value in os.environ.items() if key not in ours},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        )
        raise EngineError("seen enough")

    with pytest.raises(EngineError, match="seen enough"):
        stub(tmp_path, look)

    hosts = {address.rpartition(":")[0] for address in listening}
    programs = {name for names in listening.values() for name in names}
    assert {"gcs_server", "raylet"} <= programs  # so it was Ray that was looked at
    assert {host.replace("::ffff:", "") for host in hosts} == {"127.0.0.1"}
    assert stranger[0].returncode != 0
    assert "AuthenticationError" in stranger[0].stderr


def test_a_ray_cluster_is_joined_as_its_users_have_set_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = simulation_engine._environment(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    joined = simulation_engine._environment(tmp_path)

    changed = {name for name in alone if alone[name] != joined.get(name)}
    assert changed == {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"}


@pytest.mark.slow
def test_a_simulation_process_that_dies_ends_the_run_with_an_error(
    tmp_path: Path, stub: Callable[..., object]
) -> None:
    killed: list[int] = []

    def watch() -> None:
        if (tmp_path / "metrics.jsonl").exists() and not killed:
            killed.extend(_kill_child("flwr-simulation"))

    with pytest.raises(EngineError, match="process was killed"):
        stub(tmp_path, watch)


def test_a_simulation_process_that_lives_for_less_than_two_seconds_is_missed(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    simulation = _SimulationProcess(tmp_path, clock)
    process = _stand_in(tmp_path)
    clock.sleep(0.1)
    simulation.check()
    process.kill()
    process.communicate()

    clock.sleep(6)
    with pytest.raises(EngineError, match="process was killed"):
        simulation.check()


def test_a_killed_simulation_process_is_missed_after_five_seconds(tmp_path: Path) -> None:
    clock = FakeClock()
    simulation = _SimulationProcess(tmp_path, clock)
    process = _stand_in(tmp_path)
    clock.sleep(100)
    simulation.check()  # it is there
    process.kill()
    process.communicate()
    clock.sleep(4)
    simulation.check()

    clock.sleep(2)
    with pytest.raises(EngineError, match="process was killed"):
        simulation.check()


def test_a_simulation_process_that_never_starts_is_given_up_after_two_minutes(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    simulation = _SimulationProcess(tmp_path, clock)
    clock.sleep(119)
    simulation.check()

    clock.sleep(3)
    with pytest.raises(EngineError, match="did not start the run in 120 s"):
        simulation.check()


def test_what_the_watcher_raises_ends_the_run(tmp_path: Path, stub: Callable[..., object]) -> None:
    homes: list[str] = []

    def watch() -> None:
        homes.extend(_home_of(pid) for pid in _descendants("operation.flower.simulation_superlink"))
        if homes:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        stub(tmp_path, watch)

    assert not Path(homes[0]).exists()
    assert process_group.command_lines(Path(homes[0])) == []


def _stand_in(home: Path) -> "subprocess.Popen[bytes]":
    """Start a process that looks like the simulation's."""
    process = subprocess.Popen(
        [sys.executable, "-c", "input()", "flwr-simulation"],
        env=os.environ | {"FLWR_HOME": str(home)},
        stdin=subprocess.PIPE,
    )
    wait_until(lambda: len(process_group.command_lines(home)) == 1)
    return process


def _kill_child(name: str) -> list[int]:
    pids = _descendants(name)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return pids


def _descendants(name: str) -> list[int]:
    """Return this process's descendants whose command line has the name."""
    table = subprocess.run(
        ["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in table.stdout.splitlines()]
    family = {os.getpid()}
    for _ in rows:
        family |= {int(pid) for pid, parent, *_ in rows if int(parent) in family}
    return [int(pid) for pid, _, *args in rows if int(pid) in family and name in " ".join(args)]


def _home_of(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(v for v in variables if v.startswith(b"FLWR_HOME=")).decode().partition("=")[2]
