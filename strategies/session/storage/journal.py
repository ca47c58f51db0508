"""The journal: an experiment's state, saved before each leg so that a killed run can be resumed.

Every leg's plan is here before its first request is sent: a resumed run sends the same bytes, gets
the answers already given, and arrives at the same model.
"""

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from operation import files

from .spool import DiskSpool, MemorySpool, Spool

State = Mapping[str, Any]
_FORMAT = 1


class JournalError(RuntimeError):
    """The journal can't be used; the message says why."""


class Journal:
    """Keeps nothing: for simulations, which start anew. Models wait in memory."""

    spool: Spool
    batch = 1000  # replies that may be in memory at a time
    is_kept = False

    def __init__(self) -> None:
        self.spool = MemorySpool()

    def load(self) -> State | None:
        """Return the state last saved, or None if the experiment has not begun."""
        return None

    def write(self, state: Callable[[], State], models: Collection[str]) -> None:
        """Save the experiment's state, and drop all models except `models`."""
        self.spool.keep_only(models)


class DiskJournal(Journal):
    """Keeps the state and the models in a folder."""

    batch = 1
    is_kept = True

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = folder / "state.json"
        self.spool = DiskSpool(folder / "models")

    def load(self) -> State | None:
        try:
            state = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise JournalError(f"{self._file} is damaged: {error}") from error
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise JournalError(f"{self._file} was written by another version of FedDC")
        return state

    def write(self, state: Callable[[], State], models: Collection[str]) -> None:
        text = json.dumps({"format": _FORMAT, **state()})
        files.replace(self._file, text.encode(), mode=0o600)
        # Only now: until then the earlier state stood, and it may have named other models.
        self.spool.keep_only(models)
