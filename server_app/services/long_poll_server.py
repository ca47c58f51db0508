"""The long-poll gateway as a process: HTTP for the proxy, UDP for the ServerApp.

    python -m server_app.services.long_poll_server \\
        --listen HOST:PORT --superlink HOST:PORT --authority FILE

Only the proxy and the ServerApp reach it, on this machine. It has no state: a restart costs the
hospitals a few seconds.
"""

import argparse
import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from operation.flower.pull_request import node_of
from operation.http_server import HttpServer
from operation.tls import client_context
from protocol.address import Address

from .long_poll import PATH, LongPollGateway, PollReply

_TIMEOUT_SECONDS = 8.0
_IDLE_SECONDS = 3.0  # the SuperLink closes idle connections after five
_SHUTDOWN_SECONDS = 3
_LONGEST_BODY = 4096  # a request only names a node
_HOP_BY_HOP = frozenset({b"host", b"connection", b"content-length", b"transfer-encoding"})

Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


async def serve(listen: Address, superlink: Address, authority: Path) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP."""
    client = httpx.AsyncClient(
        base_url=f"https://{superlink}",
        verify=client_context(authority.read_text()),
        timeout=_TIMEOUT_SECONDS,
        limits=httpx.Limits(max_connections=16, keepalive_expiry=_IDLE_SECONDS),
        trust_env=False,
    )
    async with client:
        gateway = LongPollGateway(client)
        loop = asyncio.get_running_loop()
        where = (listen.host, listen.port)
        await loop.create_datagram_endpoint(lambda: gateway, local_addr=where)
        listener = socket.create_server(where, backlog=512)
        await _Server(gateway).serve(sockets=[listener])


class _PollEndpoint:
    """Reads a request, lets the gateway answer it, and stops when the client disconnects."""

    def __init__(self, gateway: LongPollGateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        if (scope["method"], scope["path"]) != ("POST", PATH):
            await _reply(send, PollReply(404, [], b""))
            return
        body = await _read(receive)
        if body is None:
            await _reply(send, PollReply(413, [], b""))
            return
        headers = [pair for pair in scope["headers"] if pair[0] not in _HOP_BY_HOP]
        polling = asyncio.ensure_future(self._gateway.pull(node_of(body) or 0, headers, body))
        disconnecting = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({polling, disconnecting}, return_when=asyncio.FIRST_COMPLETED)
            if polling.done():
                await _reply(send, polling.result())
        finally:
            for task in (polling, disconnecting):
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


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _reply(send: Send, reply: PollReply) -> None:
    length = (b"content-length", str(len(reply.body)).encode())
    headers = [*reply.headers, length]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


class _Server(HttpServer):
    """An HTTP server that releases all held polls before it shuts down."""

    def __init__(self, gateway: LongPollGateway) -> None:
        super().__init__(
            _PollEndpoint(gateway),
            shutdown_seconds=_SHUTDOWN_SECONDS,
            # Longer than the proxy's own limit, so that the proxy never uses a closed connection.
            keep_alive_seconds=120,
        )
        self._gateway = gateway

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gateway.close()
        await super().shutdown(sockets)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--listen", type=Address.parse, required=True, metavar="HOST:PORT")
    parser.add_argument("--superlink", type=Address.parse, required=True, metavar="HOST:PORT")
    parser.add_argument("--authority", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line for every request
    asyncio.run(serve(arguments.listen, arguments.superlink, arguments.authority))


if __name__ == "__main__":
    main()
