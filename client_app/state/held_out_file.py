"""Who is held out at this hospital, on disk: the key of the decision, and every decision made."""

import secrets
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from learning.data.partition.held_out import KEY_BYTES, HeldOut
from operation import files
from protocol.canonical import canonical_json, read_canonical


class HeldOutError(Exception):
    """The file can't be read or written; the message says what to do."""


class HeldOutFile:
    """The file, which only the agent's user can read: it has no patient's number in it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> HeldOut:
        """Return the decisions; the first time, with a new key, which is on the disk then."""
        try:
            content = read_canonical(_FORM, self._path.read_bytes())
        except FileNotFoundError:
            new = HeldOut(secrets.token_bytes(KEY_BYTES))
            self.save(new)
            return new
        except OSError as error:
            raise HeldOutError(f"{self._path}: {error.strerror}") from error
        except ValueError as error:
            raise HeldOutError(
                f"{self._path}: damaged ({error}): restore it from a backup. Without it, who was "
                "held out may be trained on"
            ) from error
        return HeldOut(content.key, dict(content.recorded))

    def save(self, held_out: HeldOut) -> None:
        """Store all decisions; they are on the disk when this returns.

        `feddc hospital check` may have been run by root: the agent's user owns the file then too.
        """
        content = _Content(key=held_out.key, recorded=held_out.recorded)
        try:
            files.replace(self._path, canonical_json(content), mode=0o600, to_owner=True)
        except OSError as error:
            raise HeldOutError(f"{self._path}: {error.strerror}") from error


class _Content(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_bytes="hex", val_json_bytes="hex"
    )

    version: int = Field(1, ge=1, le=1)
    key: bytes = Field(min_length=KEY_BYTES, max_length=KEY_BYTES)
    recorded: dict[str, bool]


_FORM = TypeAdapter(_Content)
