"""The address that the forwarder connects to, directly or through the hospital's proxy."""

import asyncio
import base64
from asyncio import StreamReader, StreamWriter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass

from protocol.address import Address

# More than the largest TLS record, and small enough for many connections.
BUFFER_BYTES = 256 * 1024
_DIAL_SECONDS = 30.0
_UNIX = "unix:"
_PROXY_DENIED = {
    403: "ask the proxy's operator to allow this address",
    407: "set the credentials in HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT",
}


class Unreachable(Exception):
    """The address can't be reached; the message says why and what to do."""


@dataclass(frozen=True)
class Place:
    """A host and port, or a Unix socket."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    @staticmethod
    def parse(text: str) -> "Place":
        """Read `HOST:PORT`, with IPv6 numbers in brackets, or `unix:PATH`."""
        if text.startswith(_UNIX):
            path = Path(text.removeprefix(_UNIX))
            if not path.is_absolute():
                raise ValueError(f"must be unix: and an absolute path, got {text!r}")
            return Place(path=path)
        try:
            address = Address.parse(text)
        except ValueError as error:
            raise ValueError(f"must be HOST:PORT or unix:PATH, got {text!r}") from error
        return Place(address.host, address.port)

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return str(Address(self.host, self.port))


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy that supports CONNECT."""

    place: Place
    credentials: str = ""

    @staticmethod
    def parse(url: str) -> "Proxy":
        """Read `http://[USER:PASSWORD@]HOST:PORT`; errors never contain the password."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            host, port = parts.hostname, parts.port or 80
        except ValueError:
            host, port = None, 0
        if parts.scheme != "http" or not host:
            raise ValueError(
                "HTTPS_PROXY must be http://HOST:PORT or http://USER:PASSWORD@HOST:PORT; the "
                "connection through the proxy is TLS in any case"
            )
        credentials = ""
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return Proxy(Place(host, port), credentials)


@dataclass(frozen=True)
class Upstream:
    """The one address, and the proxy to reach it through, if there is one."""

    to: Place
    proxy: Proxy | None = None

    @staticmethod
    def from_environment(to: Place, environment: Mapping[str, str]) -> "Upstream":
        """Read the proxy from HTTPS_PROXY and NO_PROXY, in upper or lower case."""
        settings = {
            name: environment.get(name) or environment.get(name.upper()) or ""
            for name in ("https_proxy", "no_proxy")
        }
        url = settings["https_proxy"].strip()
        if to.path is not None or not url:
            return Upstream(to)
        if proxy_bypass(to.host, {"no": settings["no_proxy"]}):
            return Upstream(to)
        return Upstream(to, Proxy.parse(url))

    def __str__(self) -> str:
        return f"{self.to} through the proxy {self.proxy.place}" if self.proxy else str(self.to)

    async def dial(self) -> tuple[StreamReader, StreamWriter]:
        """Connect; Unreachable if that fails or takes too long."""
        writer: StreamWriter | None = None
        try:
            async with asyncio.timeout(_DIAL_SECONDS):
                reader, writer = await _connect(self.proxy.place if self.proxy else self.to)
                if self.proxy:
                    await _ask(self.proxy, self.to, reader, writer)
                return reader, writer
        except BaseException as error:
            if writer is not None:
                with suppress(OSError):
                    writer.close()
            if isinstance(error, TimeoutError):
                raise Unreachable(f"no answer within {_DIAL_SECONDS:.0f} s") from error
            if isinstance(error, OSError):
                raise Unreachable(error.strerror or str(error)) from error
            raise


async def _connect(place: Place) -> tuple[StreamReader, StreamWriter]:
    if place.path is not None:
        return await asyncio.open_unix_connection(str(place.path), limit=BUFFER_BYTES)
    return await asyncio.open_connection(place.host, place.port, limit=BUFFER_BYTES)


async def _ask(proxy: Proxy, to: Place, reader: StreamReader, writer: StreamWriter) -> None:
    """Request a connection from the proxy (RFC 9110, 9.3.6)."""
    lines = [f"CONNECT {to} HTTP/1.1", f"Host: {to}"]
    if proxy.credentials:
        encoded = base64.b64encode(proxy.credentials.encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {encoded}")
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    await writer.drain()
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Unreachable("the proxy's reply is not HTTP; check HTTPS_PROXY") from error
    words = head.split(b"\r\n", 1)[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise Unreachable("the proxy's reply is not HTTP; check HTTPS_PROXY")
    status = int(words[1])
    if not 200 <= status < 300:
        advice = _PROXY_DENIED.get(status, "ask the proxy's operator")
        raise Unreachable(f"the proxy answered with HTTP status {status}; {advice}")
