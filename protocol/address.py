"""A host and a port as people write them. Imports Python's standard library only."""

import ipaddress
import re
from dataclasses import dataclass

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"^{_LABEL}(\.{_LABEL})*$")


@dataclass(frozen=True)
class Address:
    """A host, by name or number, and a port."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> "Address":
        """Read `host:port`; an IPv6 number stands in brackets."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise ValueError(f"must be HOST:PORT, like fl.example.org:8443, got {text!r}")
        try:
            is_number = bool(ipaddress.ip_address(host))
        except ValueError:
            is_number = False
        if bracketed != (":" in host) or not (is_number or (_NAME.match(host) and len(host) < 254)):
            raise ValueError(f"{host!r} is neither a host's name nor an IP number")
        return Address(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
