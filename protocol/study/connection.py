"""How a hospital reaches the coordinator: its address and its certificate."""

import json
from dataclasses import dataclass

from cryptography import x509
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.address import Address
from protocol.canonical import canonical_bytes, first_problem
from protocol.sealing.keys import SIGNATURE_BYTES, Identity, verify

_PURPOSE = "connection"
MAX_BYTES = 20_000


class ConnectionFileError(ValueError):
    """The bytes are not a valid connection file."""


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
    return canonical_bytes(fields)
