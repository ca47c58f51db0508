"""The dashboard: one page over the runs of a folder, for this machine's user only.

It listens on 127.0.0.1. Every request needs the token, which is in the page's address, and a Host
header that names this machine: otherwise a page of another site could read it (DNS rebinding).
"""

import asyncio
import hmac
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from operation import files
from operation.http_server import HttpServer

from .report import SCRIPTS, STYLES, read_static
from .watched_runs import WatchedRuns

TOKEN_FILE = ".dashboard-token"  # noqa: S105 (its name)
_LOOK_SECONDS = 0.5
_LIVE = "live.js"
_TYPES = {".js": "text/javascript", ".css": "text/css"}
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


def serve(runs: WatchedRuns, *, title: str, token: str, sock: socket.socket) -> None:
    """Serve the dashboard until the process is asked to end."""
    port = sock.getsockname()[1]
    app = dashboard(runs, title=title, token=token, port=port, is_over=lambda: server.should_exit)
    server = HttpServer(app, shutdown_seconds=5)
    server.run(sockets=[sock])


def listen(port: int) -> socket.socket:
    """Return a socket that listens on this machine only; port 0 takes a free one."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen()  # so that the address can be opened as soon as it is printed
    return sock


def stored_token(folder: Path) -> str:
    """Return the folder's token; it stays the same, so that an open page survives a restart."""
    path = folder / TOKEN_FILE
    if not path.exists():
        files.write_new(path, secrets.token_urlsafe(24).encode())
    if not files.is_private(path):
        files.replace(path, secrets.token_urlsafe(24).encode(), mode=0o600)
    return path.read_text()


def dashboard(
    runs: WatchedRuns,
    *,
    title: str,
    token: str,
    port: int,
    is_over: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Return the application; streams of events end when `is_over`."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.get("/")
    def page() -> Response:
        return HTMLResponse(_page(title, token))

    @app.get("/static/{name:path}")
    def static(name: str) -> Response:
        if name not in (*STYLES, *SCRIPTS, _LIVE):
            return PlainTextResponse("there is no such file", 404)
        return Response(read_static(name), media_type=_TYPES[Path(name).suffix])

    @app.get("/events")
    async def events() -> Response:
        return StreamingResponse(_events(runs, is_over), media_type="text/event-stream")

    @app.get("/metrics")
    def metrics() -> Response:
        from .prometheus import CONTENT_TYPE, metrics_text

        records = [run.record for run in runs.refresh()]
        return Response(metrics_text(records), media_type=CONTENT_TYPE)

    return _Guard(app, token, port)


async def _events(
    runs: WatchedRuns, is_over: Callable[[], bool] = lambda: False
) -> AsyncIterator[str]:
    """Yield the names of all runs when they change, and each run that has changed."""
    sent: dict[str, int] = {}
    names: list[str] | None = None
    while not is_over():
        current = await asyncio.to_thread(runs.refresh)
        if (found := [run.record.name for run in current]) != names:
            names = found
            yield _event("runs", names)
        for run in current:
            name = run.record.name
            if sent.get(name) != run.changes:
                sent[name] = run.changes
                yield _event("run", await asyncio.to_thread(runs.view, run))
        yield ": alive\n\n"  # notices a page that was closed
        await asyncio.sleep(_LOOK_SECONDS)


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def _page(title: str, token: str) -> str:
    head = "\n".join(
        f'<link rel="stylesheet" href="static/{name}?token={token}">' for name in STYLES
    )
    names = (*SCRIPTS, _LIVE)
    scripts = "\n".join(f'<script src="static/{name}?token={token}"></script>' for name in names)
    page = read_static("page.html").replace("<!--head-->", head)
    shown = "".join(letter for letter in title if letter not in "<>&\"'")
    page = page.replace("<title>FedDC</title>", f"<title>{shown}</title>")
    return page.replace("<!--scripts-->", scripts)


class _Guard:
    """Refuses requests without the token or with a foreign Host, and adds strict headers."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_strict(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]  # type: ignore[misc]
            await send(message)

        request = Request(scope)
        refused = self._refusal(request)
        app = PlainTextResponse(refused, 403) if refused else self._app
        await app(scope, receive, send_strict)  # type: ignore[arg-type]

    def _refusal(self, request: Request) -> str:
        if request.headers.getlist("host") not in ([host] for host in self._hosts):
            return "open the dashboard at the address that the command printed"
        given = request.query_params.get("token", "")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not any(
            hmac.compare_digest(text.encode(), self._token.encode()) for text in (given, bearer)
        ):
            return "the address lacks the token that the command printed"
        return ""
