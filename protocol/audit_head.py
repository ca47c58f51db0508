"""The head of a hospital's audit log, which replies carry and requests echo."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from .sealing.keys import SIGNATURE_BYTES, Identity, verify

_PURPOSE = "audit head"


class AuditHead(BaseModel):
    """The number of lines in the log and the hash of the last one, signed by the hospital."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sequence: Annotated[int, Field(ge=0, lt=2**53)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * SIGNATURE_BYTES}}}$")]

    @staticmethod
    def signed(identity: Identity, sequence: int, digest: bytes) -> "AuditHead":
        signature = identity.sign(_PURPOSE, _statement(sequence, digest))
        return AuditHead(sequence=sequence, digest=digest.hex(), signature=signature.hex())

    def is_by(self, identity: bytes) -> bool:
        """Return whether the hospital with this public identity signed the head."""
        statement = _statement(self.sequence, bytes.fromhex(self.digest))
        return verify(identity, _PURPOSE, statement, bytes.fromhex(self.signature))


def _statement(sequence: int, digest: bytes) -> bytes:
    return sequence.to_bytes(8, "big") + digest
