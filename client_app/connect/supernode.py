"""The hospital's connection: Flower's SuperNode, kept running, with the courier's node config.

Only outgoing HTTPS to the coordinator's address is needed. `HTTPS_PROXY` is obeyed; what Flower's
own processes say to each other on this machine never goes through a proxy.
"""

import os
import shutil
import socket as sockets
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from client_app.hospital_folder import HospitalFolder
from operation import log_lines
from operation.flower.environment import flower_environment
from operation.supervision import Program, keep_running
from protocol.address import Address
from protocol.study.connection import Connection, ConnectionFileError

_SOCKET = Path("socket") / "agent.sock"
_KNOWN_AS = "SuperNode ID: "
_SIGN_OFF_SECONDS = 20.0


class ConnectError(Exception):
    """The SuperNode can't be started like this; the message says what to do."""


def keep_connected(
    folder: HospitalFolder,
    coordinator: Path | None,
    socket: Path | None,
    through: Path | None,
    log: Path | None,
) -> int:
    """Run the SuperNode until a signal asks to end; return the signal's number."""
    connection = _connection(folder, coordinator)
    key = _key(folder)
    agent = (socket or _socket(folder)).absolute()
    if "'" in str(agent):
        raise ConnectError(f"{agent}: Flower can't take a socket whose path has a quotation mark")
    log_file = _writable(log or folder.transport / "connect.jsonl", asked=log is not None)
    logger = log_lines.configure(log_file, terminal=True)
    if log_file is None:
        logger.warning(f"{folder.transport} can't be written: the log goes to the terminal only")
    with tempfile.TemporaryDirectory(prefix="feddc-supernode-") as home:
        authority = Path(home) / "coordinator.crt"
        authority.write_text(connection.certificate)
        environment = _environment(Path(home))
        address, programs = connection.address, []
        if through is not None:
            # The study's certificate is good for this address too.
            address = Address("127.0.0.1", _free_port())
            relay = _relay(address, through)
            programs.append(Program("way out", relay, environment, logger.getChild("way-out")))
        notes = folder.transport if log_file else Path(home)
        supernode = _SuperNode(notes / "node-id", address, authority, key, environment)
        programs.append(
            Program(
                "supernode",
                _command(address, authority, key, agent),
                environment,
                logger.getChild("supernode"),
                before_start=supernode.sign_off,
                on_line=supernode.note,
                explain=_explain,
            )
        )
        logger.info(f"connecting to {connection.address}; the agent's socket is {agent}")
        number = keep_running(programs)
        supernode.forget()  # it signed off by itself
        logger.info("disconnected")
    return number


def _relay(address: Address, through: Path) -> Callable[[], list[str]]:
    """Listen where the SuperNode will call, and lead to the forwarder, which has a network."""
    relay = [sys.executable, "-P", "-m", "client_app.connect.forwarder"]
    return lambda: [*relay, f"--listen={address}", f"--to=unix:{through.absolute()}", "--quiet"]


@dataclass
class _SuperNode:
    """Remembers under which number the SuperNode is known, to sign it off should it be killed."""

    file: Path
    address: Address
    authority: Path
    key: Path
    environment: dict[str, str]

    def note(self, line: str) -> None:
        if line.startswith(_KNOWN_AS):
            with suppress(OSError):  # then its successor waits for a minute
                self.file.write_text(line.removeprefix(_KNOWN_AS).strip())

    def sign_off(self) -> None:
        try:
            node = self.file.read_text()
        except OSError:
            return
        places = [str(self.address), str(self.authority), str(self.key)]
        with suppress(subprocess.TimeoutExpired):  # no network: the next start may have one
            subprocess.run(  # noqa: S603 (our own interpreter and module)
                [sys.executable, "-P", "-m", "operation.flower.deactivate_node", *places, node],
                env=self.environment,
                capture_output=True,
                timeout=_SIGN_OFF_SECONDS,
                check=False,
            )
        self.forget()

    def forget(self) -> None:
        with suppress(OSError):
            self.file.unlink(missing_ok=True)


def _command(address: Address, authority: Path, key: Path, agent: Path) -> Callable[[], list[str]]:
    path = Path(sys.executable).parent / "flower-supernode"
    supernode = str(path) if path.exists() else shutil.which("flower-supernode")
    if supernode is None:
        raise ConnectError("flower-supernode is not installed: install feddc again")

    def command() -> list[str]:
        port = _free_port()  # of the API for its own couriers; another at every start
        return [
            *(sys.executable, "-P", "-m", "client_app.connect.supernode_runner", str(port)),
            supernode,
            f"--superlink={address}",
            f"--root-certificates={authority}",
            f"--auth-supernode-private-key={key}",
            f"--node-config=agent-socket='{agent}'",
            "--isolation=process",  # the couriers are the executor's
            "--host=127.0.0.1",
            f"--port={port}",
        ]

    return command


def _environment(home: Path) -> dict[str, str]:
    return flower_environment(home) | {
        # The executor forks, which NumPy's threads do not like.
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _explain(code: int, last: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in last:
        return (
            "found another certificate than the study's: somebody is in between, or the "
            "coordinator.json is an old one. Ask the coordinator over the telephone"
        )
    if "Failed to activate SuperNode" in last or "Invalid SuperNode authentication" in last:
        return (
            "was turned away: the coordinator has not enrolled this SuperNode's key, or believes "
            "for a minute that it is still connected"
        )
    return ""


def _connection(folder: HospitalFolder, file: Path | None) -> Connection:
    if file is not None:
        try:
            return Connection.from_json(file.read_bytes())
        except ConnectionFileError as error:
            raise ConnectError(f"{file}: {error}; ask the coordinator for it again") from error
    connection = folder.connection()
    if connection is None:
        raise ConnectError(
            f"{folder.connection_file}: not there; `feddc hospital join` with the coordinator.json "
            "that came with the roster, or give --coordinator FILE"
        )
    return connection


def _key(folder: HospitalFolder) -> Path:
    key = folder.transport_key_file.absolute()
    if not key.exists():
        raise ConnectError(
            f"{key}: not there; `feddc hospital init` makes it, `renew-transport-key` a new one"
        )
    if not os.access(key, os.R_OK):
        raise ConnectError(f"{key}: can't be read; give it to the user who runs this (chown)")
    return key


def _socket(folder: HospitalFolder) -> Path:
    """Return the agent's socket; the file that says where may be the agent's alone."""
    try:
        values = tomllib.loads(folder.configuration.read_text(encoding="utf-8"))
        return folder.path / str(values.get("agent", {}).get("socket", _SOCKET))
    except (OSError, tomllib.TOMLDecodeError, AttributeError):
        return folder.path / _SOCKET


def _writable(path: Path, *, asked: bool) -> Path | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        if asked:
            raise ConnectError(f"{path}: {error.strerror}; give another --log") from error
        return None
    return path


def _free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
