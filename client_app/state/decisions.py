"""The operator's decisions on experiments: a file that only the agent's user can read or write.

`feddc hospital approve` and `reject` write it, and the agent reads it whenever the coordinator asks
again. The courier has no access to the state folder.
"""

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from operation import files
from operation.locks import LockHeld, ProcessLock
from protocol.canonical import canonical_json

Decision = Literal["approved", "rejected"]
logger = logging.getLogger(__name__)


class DecisionsError(Exception):
    """The decisions can't be read or written; the message says what to do."""


class Decisions(Protocol):
    """What the operator has decided, by an experiment's approval fingerprint."""

    def get(self, fingerprint: str) -> Decision | None: ...


class NoDecisions:
    """For hospitals without an operator: simulated ones."""

    def get(self, fingerprint: str) -> Decision | None:
        return None


class DecisionFile:
    """The decisions on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, fingerprint: str) -> Decision | None:
        """Return the decision on an experiment; None if there is none or the file is damaged."""
        try:
            found = self._read().get(fingerprint)
        except DecisionsError as error:
            logger.error("%s", error)
            return None
        return found.decision if found is not None else None

    def record(self, experiment: str, fingerprint: str, decision: Decision) -> None:
        """Store a decision, in place of an earlier one; it is on the disk when this returns."""
        lock = ProcessLock(self._path.with_suffix(".lock"))
        try:
            lock.acquire(f"process {os.getpid()}")
        except LockHeld as error:
            raise DecisionsError(f"{error}, which decides on an experiment: try again") from None
        try:
            time = datetime.now(UTC).isoformat(timespec="seconds")
            made = _Made(experiment=experiment, decision=decision, time=time)
            content = _Content(decisions={**self._read(), fingerprint: made})
            files.replace(self._path, canonical_json(content), mode=0o600)
        finally:
            lock.release()

    def clear(self) -> None:
        """Forget all decisions: every experiment needs a new one."""
        self._path.unlink(missing_ok=True)
        files.sync_folder(self._path.parent)

    def _read(self) -> Mapping[str, "_Made"]:
        try:
            return _CONTENT.validate_json(self._path.read_bytes()).decisions
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise DecisionsError(
                f"{self._path}: {error.strerror}; it must belong to the agent's user"
            ) from error
        except ValidationError as error:
            raise DecisionsError(
                f"{self._path} is damaged; remove it, and approve the experiments again"
            ) from error


class _Made(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    experiment: str
    decision: Decision
    time: str


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1] = 1
    decisions: dict[str, _Made]


_CONTENT = TypeAdapter(_Content)
