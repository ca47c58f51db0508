"""Flower's simulation engine for one run: a private SuperLink, which ends with the run.

Nothing is shared with other runs, with `flwr run` or with the user's Flower configuration, and
nothing is left behind: no process, no port, no file outside the run folder.
"""

import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from operation import files
from operation.clock import Clock
from operation.config import Scalar
from operation.flower.environment import superlink_environment
from operation.flower.options_and_logs import SECRET_OPTION
from operation.processes import process_group

if TYPE_CHECKING:
    from operation.flower.control_api import ControlApi, RunStatus

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_START_SECONDS, _GONE_SECONDS, _LOOK_SECONDS = 120.0, 5.0, 2.0


class EngineError(RuntimeError):
    """Flower could not be started, or stopped during the run."""


def run_app(
    *,
    server_app: str,
    client_app: str,
    config: Mapping[str, Scalar],
    nodes: int,
    cpus: int | None,
    log_path: Path,
    watch: Callable[[], object],
    verbose: bool,
) -> "RunStatus":
    """Run a Flower app to its end and return its status.

    `watch` is called several times a second and may raise to end the run. The app's log is written
    to `log_path` and, if `verbose`, to stderr.
    """
    with process_group.new_home() as home, _superlink(home) as superlink:
        # Imported only here: Flower's modules take a second, and so does the SuperLink.
        from operation.flower import control_api

        try:
            bundle = control_api.pack(server_app=server_app, client_app=client_app, config=config)
            superlink.wait_until(lambda: control_api.is_up(superlink.address))
            control = control_api.ControlApi(superlink.address, secret=superlink.secret)
            run_id = control.start_simulation(bundle, nodes=nodes, cpus=_ray_cpus(nodes, cpus))
            log = _LogCopy(control, run_id, log_path, verbose)
            simulation = _SimulationProcess(home)
            while log.is_alive():
                watch()
                superlink.check()
                simulation.check()
                log.join(timeout=0.1)
            watch()
            return control.status(run_id)
        except (EngineError, control_api.RequestError) as error:
            with log_path.open("a", encoding="utf-8") as file:
                file.write(f"\nSuperLink:\n{superlink.log()}")
            if isinstance(error, EngineError):
                raise
            superlink.check(seconds=1.0)  # a request can fail just before the process ends
            raise EngineError(f"SuperLink request failed: {error}") from error


@contextmanager
def _superlink(home: Path) -> Iterator["_SuperLink"]:
    superlink = _SuperLink(home)
    try:
        yield superlink
    finally:
        superlink.process.kill()
        superlink.process.wait()


class _SuperLink:
    """A SuperLink in its own session, so that the terminal's Ctrl-C reaches only this process."""

    def __init__(self, home: Path) -> None:
        self._log = home / "superlink.log"
        self._reservation, port = _reserved_port()
        self.address = f"127.0.0.1:{port}"
        # The home is this user's alone: no other user of the machine can use the SuperLink.
        self.secret = home / "secret"
        files.write_new(self.secret, secrets.token_hex(32).encode())
        options = ["--insecure", "--simulation", "--isolation=process", "--host=127.0.0.1"]
        options.append(f"{SECRET_OPTION}={self.secret}")
        command = [
            sys.executable,
            "-P",
            "-m",
            "operation.flower.simulation_superlink",
            str(os.getpid()),
            *options,
        ]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                [*command, "--port", str(port), "--disable-runtime-dependency-installation"],
                env=_environment(home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, is_up: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        with closing(self._reservation):
            while not is_up():
                self.check()
                if time.monotonic() > deadline:
                    raise EngineError(f"Flower's SuperLink did not start in {_START_SECONDS:.0f} s")
                time.sleep(0.05)

    def check(self, *, seconds: float = 0.0) -> None:
        try:
            code = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return
        raise EngineError(f"Flower's SuperLink ended with exit code {code}")

    def log(self) -> str:
        return _COLOUR.sub("", self._log.read_text(encoding="utf-8", errors="replace"))


class _LogCopy(threading.Thread):
    """Copies the log while it is written; ends when Flower reports the run as finished."""

    def __init__(self, control: "ControlApi", run_id: int, path: Path, verbose: bool) -> None:
        super().__init__(daemon=True)
        self._control, self._run_id, self._path, self._verbose = control, run_id, path, verbose
        self.start()

    def run(self) -> None:
        from operation.flower.control_api import RequestError

        with self._path.open("a", encoding="utf-8", buffering=1) as file:
            try:
                for text in self._control.log(self._run_id):
                    file.write(_COLOUR.sub("", text))
                    if self._verbose:
                        sys.stderr.write(text)
            except (RequestError, ValueError):  # the latter: cut off in the middle of a message
                return  # the SuperLink is gone: the main thread detects that


class _SimulationProcess:
    """Detects that the process of ServerApp and Ray was killed; Flower takes 45 s to notice."""

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        self._home, self._clock = home, clock or Clock()
        self._looked = self._last_seen = self._clock.now()
        self._seen = False

    def check(self) -> None:
        now = self._clock.now()
        # Look at every call until it has been seen: a process killed before that is not missed.
        pause = _LOOK_SECONDS if self._seen else 0.0
        if not process_group.VISIBLE or now - self._looked < pause:
            return
        self._looked = now
        if any("flwr-simulation" in line for line in process_group.command_lines(self._home)):
            self._seen, self._last_seen = True, now
        elif self._seen and now - self._last_seen > _GONE_SECONDS:
            raise EngineError("the simulation process was killed: is there enough memory?")
        elif now - self._last_seen > _START_SECONDS:
            raise EngineError(f"Flower did not start the run in {_START_SECONDS:.0f} s")


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of everything the SuperLink starts."""
    environment = superlink_environment(home, poll_seconds=0.05) | {
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Flower's actors have an environment of their own, for which Ray's early workers do not
        # serve: these would only take the CPUs from the actors while both start.
        "RAY_prestart_worker_first_driver": "0",
        # Ray's workers change their title, and would write it over the mark in their environment.
        "SPT_NOENV": "1",
        # Leave the GPUs visible to the actors, which share them.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    return environment if joins_ray_cluster() else environment | _private_ray(home)


def _private_ray(home: Path) -> dict[str, str]:
    """Return the environment of a Ray that serves this simulation and nobody else.

    Ray runs whatever code its callers send. By default it listens on all interfaces.
    """
    token = home / "ray-token"
    files.write_new(token, secrets.token_hex(32).encode())
    return {
        # Without a cluster Ray takes the loopback address for its own; it knows this as a
        # peculiarity of Windows and macOS.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Other users of this machine can reach the loopback interface, but have no token.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
    }


def _ray_cpus(nodes: int, cpus: int | None) -> int | None:
    """Return the number of actors for Ray: each needs memory, and one per node is enough."""
    if joins_ray_cluster():
        return None
    if cpus is None:
        cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(nodes, cpus)


def joins_ray_cluster() -> bool:
    """Return whether RAY_ADDRESS names a running Ray cluster, which has its own size."""
    return os.environ.get("RAY_ADDRESS", "local") != "local"


def _reserved_port() -> tuple[socket.socket, int]:
    # Bound but not listening: the SuperLink can take the port, and the kernel gives it to no other
    # program, such as a second simulation, in the meantime.
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind(("127.0.0.1", 0))
    port: int = reservation.getsockname()[1]
    if sys.platform != "linux":  # elsewhere the reservation would keep the SuperLink out, too
        reservation.close()
    return reservation, port
