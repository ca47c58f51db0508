"""How a hospital reaches the coordinator: its address and its certificate."""

import ipaddress
import json
import re
from dataclasses import dataclass

from cryptography import x509
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.canonical import canonical_json, first_problem
from protocol.keys import SIGNATURE_BYTES, Identity, verify

_PURPOSE = "connection"
MAX_BYTES = 20_000
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"^{_LABEL}(\.{_LABEL})*$")


class ConnectionFileError(ValueError):
    """The bytes are not a valid connection file."""


@dataclass(frozen=True)
class Address:
    """A host, by name or IP address, and a port."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> "Address":
        """Parse `host:port`; an IPv6 address is in brackets."""
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
            raise ValueError(f"{host!r} is neither a host name nor an IP address")
        return Address(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Connection:
    """What a hospital needs to connect. Nothing in it is secret.

    The coordinator's identity signs it, and `join` compares that with the roster's coordinator.
    """

    address: Address
    certificate: str  # of the coordinator's certificate authority, PEM
    signature: bytes

    @staticmethod
    def make(address: Address, certificate: str, coordinator: Identity) -> "Connection":
        signature = coordinator.sign(_PURPOSE, _content(address, certificate))
        return Connection(address, certificate, signature)

    def is_signed_by(self, coordinator: bytes) -> bool:
        content = _content(self.address, self.certificate)
        return verify(coordinator, _PURPOSE, content, self.signature)

    def to_json(self) -> str:
        fields = {
            "address": str(self.address),
            "certificate": self.certificate,
            "signature": self.signature.hex(),
        }
        return json.dumps(fields, indent=2) + "\n"

    @staticmethod
    def from_json(data: bytes) -> "Connection":
        """Parse a connection file; raise ConnectionFileError if it is invalid."""
        if len(data) > MAX_BYTES:
            raise ConnectionFileError(f"has more than {MAX_BYTES} bytes")
        try:
            form = _Form.model_validate_json(data)
        except ValidationError as error:
            raise ConnectionFileError(first_problem(error, whole="connection")) from error
        try:
            address = Address.parse(form.address)
        except ValueError as error:
            raise ConnectionFileError(f"address {error}") from error
        try:
            x509.load_pem_x509_certificate(form.certificate.encode())
        except ValueError as error:
            raise ConnectionFileError("certificate: not a PEM certificate") from error
        return Connection(address, form.certificate, bytes.fromhex(form.signature))


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    address: str
    certificate: str
    signature: str = Field(pattern=rf"^[0-9a-f]{{{2 * SIGNATURE_BYTES}}}$")


def _content(address: Address, certificate: str) -> bytes:
    fields = {"address": str(address), "certificate": certificate, "version": 1}
    return canonical_json(fields)
