"""The services in the background: start them, check them, stop them with all children."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from operation import files
from operation.clock import Clock
from operation.processes import process_group
from operation.tls import client_context
from protocol.address import Address
from server_app.study.study_folder import INTERNAL_HOST, Study

from . import nginx
from .service_lock import holders
from .supervisor import PARTS, Part, ServiceError, environment, lock_file

_START_SECONDS, _END_SECONDS = 90.0, 40.0
_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 20.0  # on a busy machine; a service that is not there is noticed at once
_NAMES = ("-".join(PARTS), *PARTS)  # both parts in one process, or each in a container of its own


def start(study: Study, parts: Sequence[Part]) -> None:
    """Start the parts in the background and wait until they answer."""
    _check_ports(study, parts)
    if "proxy" in parts:
        nginx.prepare(study)  # report a wrong configuration here rather than in a log
    command = [
        sys.executable,
        "-P",
        "-m",
        "server_app.services.supervisor",
        str(study.folder),
        *parts,
    ]
    files.make_folder(study.logs)
    with (study.logs / "start.log").open("wb") as log:
        supervisor = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(os.environ) | {"PYTHONPATH": environment(study)["PYTHONPATH"]},
        )
    wait_until_it_answers(study, parts, supervisor)


def wait_until_it_answers(
    study: Study,
    parts: Sequence[Part],
    supervisor: subprocess.Popen[bytes] | None = None,
    clock: Clock | None = None,
) -> None:
    """Wait until all parts answer; raise ServiceError with the reason if they do not."""
    clock = clock or Clock()
    deadline = clock.now() + _START_SECONDS
    while not all(answers(study, part) for part in parts):
        if supervisor is not None and supervisor.poll() is not None:
            said = (study.logs / "start.log").read_text(errors="replace").strip()
            raise ServiceError(said.splitlines()[-1] if said else "the services ended at once")
        if clock.now() > deadline:
            stop(study)
            raise ServiceError(
                f"no answer after {_START_SECONDS:.0f} s; stopped again, see {study.logs}"
            )
        clock.sleep(_LOOK_SECONDS)


def stop(study: Study) -> bool:
    """Stop all processes of the study on this machine; return whether any was running."""
    was_up = False
    for name in _NAMES:
        if (pid := holders(lock_file(study, name)).get("supervisor")) is None:
            continue
        was_up = True
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _END_SECONDS
        while holders(lock_file(study, name)):
            if time.monotonic() > deadline:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                break
            time.sleep(_LOOK_SECONDS)
    process_group.end_all(study.flower_home)
    return was_up


def running(study: Study) -> dict[str, int]:
    """Return the process ids of the services, in the background or in this container."""
    found: dict[str, int] = {}
    for name in _NAMES:
        found |= holders(lock_file(study, name))
    return found


def answers(study: Study, part: Part) -> bool:
    """Return whether a part answers, with the certificate that hospitals will see."""
    if part == "superlink":
        host, port = INTERNAL_HOST, study.file.internal_port
        request = b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"
    else:
        host, port = _listen(study)
        request = b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"
    try:
        with _secured(study, host, port) as link:
            link.sendall(request)
            status = link.recv(64).split(b" ")[1:2]
    except (OSError, ssl.SSLError):
        return False
    return status == [b"200" if part == "superlink" else b"404"]


def served_certificate(study: Study) -> bytes | None:
    """Return the certificate that the proxy shows now, as DER; None if it does not answer.

    A renewed one is in its file first, and served after the next `down` and `up`.
    """
    try:
        with _secured(study, *_listen(study)) as link:
            return link.getpeercert(binary_form=True)
    except (OSError, ssl.SSLError):
        return None


@contextmanager
def _secured(study: Study, host: str, port: int) -> Iterator[ssl.SSLSocket]:
    context = client_context(study.authority.read_text())
    with (
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        yield secure


def _listen(study: Study) -> tuple[str, int]:
    address = Address.parse(study.file.listen)
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (compared, not bound)
    return everywhere.get(address.host, address.host), address.port


def _check_ports(study: Study, parts: Sequence[Part]) -> None:
    long_poll = study.long_poll_address
    wanted = {
        "superlink": [(INTERNAL_HOST, study.file.internal_port), (long_poll.host, long_poll.port)],
        "proxy": [_listen(study)],
    }
    keys = {"superlink": "internal-port", "proxy": "listen"}
    for (host, port), key in ((place, keys[part]) for part in parts for place in wanted[part]):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except PermissionError as error:
                raise ServiceError(
                    f"port {port} needs root: set {key} in study.toml to a port above 1023, and "
                    "forward to it"
                ) from error
            except OSError as error:
                raise ServiceError(
                    f"{host}:{port} cannot be used: {error.strerror}; stop the program that uses "
                    f"it, or change {key} in study.toml"
                ) from error
