"""The courier's client for the agent: HTTP over a Unix socket, with the standard library only.

An agent that does not answer may be restarting: the same request is sent again, and the agent
answers it as if it were the first time.
"""

import json
import math
import struct
from http.client import HTTPConnection, HTTPException, HTTPResponse
from socket import AF_UNIX, SO_SNDTIMEO, SOCK_STREAM, SOL_SOCKET, socket

from operation.clock import Clock

_PATIENCE_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
_BUSY = 503


class AgentUnreachable(Exception):
    """No agent answers at the socket."""


class AgentTurnedAway(Exception):
    """The agent rejected the request unread."""


def ask(
    path: str, data: bytes, *, patience: float = _PATIENCE_SECONDS, clock: Clock | None = None
) -> bytes:
    """Send a request to the agent at the socket and return its reply, which may take hours."""
    clock = clock or Clock()
    give_up: float | None = None
    while True:
        try:
            status, reply = _exchange(path, "POST", "/v1/request", data)
            if status != _BUSY:
                break
            problem: Exception = AgentUnreachable("the hospital's agent is busy")
        except PermissionError as error:
            raise AgentUnreachable(
                "the courier has no permission to use the agent's socket"
            ) from error
        except (OSError, HTTPException) as error:
            problem = AgentUnreachable(f"the hospital's agent does not answer ({_kind(error)})")
        # The limit starts at the first failure: until then the agent may have worked for hours.
        give_up = give_up or clock.now() + patience
        if clock.now() >= give_up:
            raise problem
        clock.sleep(_PAUSE_SECONDS)
    if status != 200:
        raise AgentTurnedAway(f"the hospital's agent rejected the request (HTTP status {status})")
    return reply


def health(path: str) -> dict[str, str]:
    """Return the name, roster and version of the agent at the socket, or raise AgentUnreachable."""
    try:
        status, reply = _exchange(path, "GET", "/v1/health", b"", timeout=5.0)
    except (OSError, HTTPException) as error:
        raise AgentUnreachable(f"no agent answers ({_kind(error)})") from error
    if status != 200:
        raise AgentUnreachable(f"no agent answers (HTTP status {status})")
    facts: dict[str, str] = json.loads(reply)
    return facts


def _exchange(
    path: str, method: str, target: str, data: bytes, timeout: float | None = None
) -> tuple[int, bytes]:
    connection = _UnixConnection(path, timeout)
    try:
        try:
            headers = {"Content-Type": "application/octet-stream"} if data else {}
            connection.request(method, target, body=data or None, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the agent may have rejected the request before it had read everything
        response: HTTPResponse = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("agent", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket(AF_UNIX, SOCK_STREAM)
        if self.timeout is not None:
            # Python's timeout would not wait for room in the agent's queue of connections.
            limit = struct.pack("ll", math.ceil(self.timeout), 0)
            self.sock.setsockopt(SOL_SOCKET, SO_SNDTIMEO, limit)
        self.sock.connect(self._path)
        self.sock.settimeout(self.timeout)


def _kind(error: Exception) -> str:
    # Not its text: it is sent to the coordinator, and may contain a path.
    return type(error).__name__
