"""Keep Flower's SuperNode connected to the coordinator, and configure it for the courier.

It needs only outgoing HTTPS to the coordinator's address. It uses `HTTPS_PROXY`, except between
Flower's own processes on this machine.
"""

import os
import shutil
import socket as sockets
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from cryptography import x509

from client_app.hospital_folder import HospitalFolder
from operation import log_lines
from operation.flower.environment import flower_environment
from operation.processes.supervision import Program, keep_running
from protocol.address import Address
from protocol.study.connection import Connection, ConnectionFileError

from .https_link import clock_problem, date_problem, is_about_dates
from .message_record import FILE_NAME
from .node_record import NodeRecord
from .supernode_runner import LOST_MESSAGE

_SOCKET = Path("socket") / "agent.sock"
_LOOK_SECONDS = 5.0
_CLOCK_UNCLEAR = "its certificate has expired or is not valid yet; is this machine's clock right?"


class ConnectError(Exception):
    """The SuperNode can't be started; the message says why and what to do."""


def keep_connected(
    folder: HospitalFolder,
    coordinator: Path | None,
    socket: Path | None,
    via_socket: Path | None,
    log: Path | None,
) -> int:
    """Run the SuperNode until a signal arrives; return the signal's number."""
    connection = _connection(folder, coordinator)
    key = _key(folder)
    agent = (socket or _socket(folder)).absolute()
    if "'" in str(agent):
        raise ConnectError(
            f"{agent}: Flower does not allow quotation marks in the path of a socket"
        )
    log_file = _writable(log or folder.transport / "connect.jsonl", required=log is not None)
    logger = log_lines.configure(log_file, terminal=True)
    if log_file is None:
        logger.warning(f"{folder.transport} is not writable: logging to the terminal only")
    with tempfile.TemporaryDirectory(prefix="feddc-supernode-") as home:
        authority = Path(home) / "coordinator.crt"
        authority.write_text(connection.certificate)
        environment = _environment(Path(home))
        address, programs = connection.address, []
        if via_socket is not None:
            # The study's certificate is valid for this address too.
            address = Address("127.0.0.1", _free_port())
            forwarder = _forwarder_command(address, via_socket)
            programs.append(
                Program("forwarder", forwarder, environment, logger.getChild("forwarder"))
            )
        writable = folder.transport if log_file else Path(home)
        record = NodeRecord(writable / "node-id", address, authority, key, environment)
        programs.append(
            Program(
                "supernode",
                _command(address, authority, key, agent, writable / FILE_NAME),
                environment,
                logger.getChild("supernode"),
                before_start=record.deactivate_node,
                on_line=record.read_line,
                explain=_explanation(address, connection.certificate),
            )
        )
        if problem := date_problem([x509.load_pem_x509_certificate(authority.read_bytes())]):
            logger.warning(problem)
        logger.info(f"connecting to {connection.address}; the agent's socket is {agent}")
        number = keep_running(programs)
        record.clear()  # the SuperNode has deactivated its node
        logger.info("disconnected")
    return number


def _forwarder_command(address: Address, via_socket: Path) -> Callable[[], list[str]]:
    """Return the command that forwards from `address` to the socket of a host with a network."""
    program = [sys.executable, "-P", "-m", "client_app.connect.forwarder"]
    upstream = f"--to=unix:{via_socket.absolute()}"
    return lambda: [*program, f"--listen={address}", upstream, "--quiet"]


def _command(
    address: Address, authority: Path, key: Path, agent: Path, record: Path
) -> Callable[[], list[str]]:
    path = Path(sys.executable).parent / "flower-supernode"
    supernode = str(path) if path.exists() else shutil.which("flower-supernode")
    if supernode is None:
        raise ConnectError("flower-supernode is not installed: reinstall feddc")

    def command() -> list[str]:
        port = _free_port()  # of the SuperNode's API for its couriers; another port at every start
        runner = [sys.executable, "-P", "-m", "client_app.connect.supernode_runner"]
        return [
            *(*runner, str(port), str(record.absolute())),
            supernode,
            f"--superlink={address}",
            f"--root-certificates={authority}",
            f"--auth-supernode-private-key={key}",
            f"--node-config=agent-socket='{agent}'",
            "--isolation=process",  # the runner forks the couriers
            "--host=127.0.0.1",
            f"--port={port}",
        ]

    return command


def _environment(home: Path) -> dict[str, str]:
    return flower_environment(home) | {
        # The runner forks, which is not safe with NumPy's threads.
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _explanation(address: Address, authority: str) -> Callable[[int, str], str]:
    """Return a function that explains why the SuperNode ended, from its last lines."""

    def explain(code: int, last: str) -> str:
        if "CERTIFICATE_VERIFY_FAILED" in last:
            if is_about_dates(last):
                problem = clock_problem(address, authority, _LOOK_SECONDS)
                return f"can't verify the coordinator: {problem or _CLOCK_UNCLEAR}"
            return (
                "found another certificate than the study's: the connection is intercepted, or the "
                "coordinator.json is outdated. Ask the coordinator over the telephone"
            )
        if "Failed to activate SuperNode" in last or "Invalid SuperNode authentication" in last:
            return (
                "was rejected: the coordinator has not enrolled this SuperNode's key, or considers "
                "it still connected, for a minute at most"
            )
        if LOST_MESSAGE in last:
            return f"was ended: {LOST_MESSAGE}"
        return ""

    return explain


def _connection(folder: HospitalFolder, file: Path | None) -> Connection:
    if file is not None:
        try:
            return Connection.from_json(file.read_bytes())
        except ConnectionFileError as error:
            raise ConnectError(
                f"{file}: {error}; ask the coordinator for the file again"
            ) from error
    connection = folder.connection()
    if connection is None:
        raise ConnectError(
            f"{folder.connection_file}: no such file; run `feddc hospital join` with the "
            "coordinator.json that came with the roster, or pass --coordinator FILE"
        )
    return connection


def _key(folder: HospitalFolder) -> Path:
    key = folder.transport_key_file.absolute()
    if not key.exists():
        raise ConnectError(
            f"{key}: no such file; create it with `feddc hospital renew-transport-key`"
        )
    if not os.access(key, os.R_OK):
        raise ConnectError(
            f"{key}: not readable; chown it to the user who runs `feddc hospital connect`"
        )
    return key


def _socket(folder: HospitalFolder) -> Path:
    """Return the agent's socket as in hospital.toml, or the default if this user can't read it."""
    try:
        values = tomllib.loads(folder.configuration.read_text(encoding="utf-8"))
        return folder.path / str(values.get("agent", {}).get("socket", _SOCKET))
    except (OSError, tomllib.TOMLDecodeError, AttributeError):
        return folder.path / _SOCKET


def _writable(path: Path, *, required: bool) -> Path | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        if required:
            raise ConnectError(f"{path}: {error.strerror}; pass another --log") from error
        return None
    return path


def _free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
