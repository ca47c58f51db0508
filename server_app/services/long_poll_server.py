"""The waiting room's process: one path for the proxy, datagrams for the ServerApp.

    python -m server_app.services.long_poll_server \\
        --listen HOST:PORT --superlink HOST:PORT --authority FILE

Only the proxy and the ServerApp reach it, on this machine. It keeps nothing: killed and started
again, it has cost the hospitals a few seconds.
"""

import argparse
import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from operation import signals
from operation.flower.pull_request import node_of
from protocol.address import Address

from .long_poll import PATH, Answer, WaitingRoom

_ASK_SECONDS = 8.0
_IDLE_SECONDS = 3.0  # the SuperLink closes idle connections after five
_FINISHING_SECONDS = 3
_LONGEST_BODY = 4096  # it names a node, and that is all
_OF_THIS_CONNECTION = frozenset({b"host", b"connection", b"content-length", b"transfer-encoding"})

Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


async def serve(listen: Address, superlink: Address, authority: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    client = httpx.AsyncClient(
        base_url=f"https://{superlink}",
        verify=ssl.create_default_context(cafile=str(authority)),
        timeout=_ASK_SECONDS,
        limits=httpx.Limits(max_connections=16, keepalive_expiry=_IDLE_SECONDS),
        trust_env=False,
    )
    async with client:
        room = WaitingRoom(client)
        loop = asyncio.get_running_loop()
        where = (listen.host, listen.port)
        await loop.create_datagram_endpoint(lambda: room, local_addr=where)
        config = uvicorn.Config(
            _Reception(room),
            http="h11",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            # Longer than the proxy keeps one: it never meets a connection that has just closed.
            timeout_keep_alive=120,
            timeout_graceful_shutdown=_FINISHING_SECONDS,
        )
        await _Server(config, room).serve(sockets=[socket.create_server(where, backlog=512)])


class _Reception:
    """Reads a request, has the room answer it, and notices when its sender has gone."""

    def __init__(self, room: WaitingRoom) -> None:
        self._room = room

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        if (scope["method"], scope["path"]) != ("POST", PATH):
            await _answer(send, Answer(404, [], b""))
            return
        body = await _read(receive)
        if body is None:
            await _answer(send, Answer(413, [], b""))
            return
        headers = [pair for pair in scope["headers"] if pair[0] not in _OF_THIS_CONNECTION]
        answering = asyncio.ensure_future(self._room.pull(node_of(body) or 0, headers, body))
        leaving = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await _answer(send, answering.result())
        finally:
            for task in (answering, leaving):
                task.cancel()


async def _read(receive: Receive) -> bytes | None:
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
        if len(body) > _LONGEST_BODY:
            return None
    return body


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(send: Send, answer: Answer) -> None:
    length = (b"content-length", str(len(answer.body)).encode())
    headers = [*answer.headers, length]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class _Server(uvicorn.Server):
    """Uvicorn, which told to stop first sends everybody away."""

    def __init__(self, config: uvicorn.Config, room: WaitingRoom) -> None:
        super().__init__(config)
        self._room = room

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._room.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        signals.catch(self.handle_exit, (signals.SIGTERM, signals.SIGINT))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--listen", type=Address.parse, required=True, metavar="HOST:PORT")
    parser.add_argument("--superlink", type=Address.parse, required=True, metavar="HOST:PORT")
    parser.add_argument("--authority", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line for every question
    asyncio.run(serve(arguments.listen, arguments.superlink, arguments.authority))


if __name__ == "__main__":
    main()
