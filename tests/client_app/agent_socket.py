"""An agent's socket, used byte by byte, and the log of a stub behind it."""

import socket

from tests.client_app.conftest import Agent


def worked(agent: Agent) -> list[str]:
    """Return what the stub did, in order."""
    log = agent.socket.with_name("log")
    return log.read_text().splitlines() if log.exists() else []


def arrived(agent: Agent, request: bytes) -> int:
    """Return how often the stub has read a request."""
    file = agent.socket.with_name("arrivals")
    return file.read_bytes().splitlines().count(request) if file.exists() else 0


def http_head(*lines: str) -> bytes:
    given = {line.split(":")[0].lower() for line in lines}
    usual = {"host": "Host: agent", "content-type": "Content-Type: application/octet-stream"}
    headers = [text for name, text in usual.items() if name not in given]
    return "\r\n".join(["POST /v1/request HTTP/1.1", *headers, *lines, "", ""]).encode()


def connected(agent: Agent) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(agent.socket))  # waits for room in the agent's queue
    connection.settimeout(60)
    return connection


def talk(agent: Agent, *parts: bytes) -> bytes:
    """Send the parts and return the beginning of what comes back."""
    answer = b""
    with connected(agent) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        while b"\r\n\r\n" not in answer and (piece := connection.recv(65536)):
            answer += piece
    return answer


def status(agent: Agent) -> int:
    return int(talk(agent, http_head("Content-Length: 4", "Connection: close"), b"room")[9:12])
