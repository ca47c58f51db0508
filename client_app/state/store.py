"""A hospital's persistent state: bytes by name, changed in transactions."""

from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from operation.disk_space import byte_size

# Set, to the reason, when the agent finds that its state was restored from an old backup; `reset`
# removes it.
STOPPED = "stopped"
# No experiment's id begins with this sign.
OUTLIVES = "~"
# Before an experiment's id: the reply to its `close`, or nothing if it has expired.
ENDED = f"{OUTLIVES}ended/"
# From which this hospital draws its batches, so that nobody else knows who is in one.
STREAM_SECRET = f"{OUTLIVES}stream-secret"


class StoreFull(Exception):
    """There is no space left for the state; nothing was changed."""

    def __init__(self, path: Path, needed: int) -> None:
        super().__init__(f"no space left for {path}: {byte_size(needed)} are needed")


class UnreadableExperiment(Exception):
    """The key of an experiment is missing or damaged; the message says where and what to do."""


class Store(Protocol):
    """Bytes by name. A transaction is applied as a whole or not at all.

    A name `<experiment>/<entry>` belongs to an experiment: nothing of it can be read any more when
    the experiment has been destroyed. Names without a slash, and those that begin with `OUTLIVES`,
    outlive experiments. Audit lines are append-only.
    """

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, value: bytes) -> None: ...

    def delete(self, prefix: str) -> None:
        """Delete every name that begins with `prefix`."""

    def experiments(self) -> list[str]:
        """Return the ids of all experiments of which something is stored."""

    def older_than(self, seconds: float) -> list[str]:
        """Return the experiments of which something was first stored longer ago than this."""

    def destroy(self, experiment: str) -> None:
        """Destroy what is stored of an experiment, its key first of all."""

    def renew_key(self, experiment: str) -> None:
        """Make what was deleted of an experiment unreadable, and keep the rest."""

    def append_audit(self, line: bytes) -> None: ...

    def audit_line(self, number: int) -> bytes | None:
        """Return a line of the audit log, counted from 1, or None where lines are not stored."""

    def transaction(self) -> AbstractContextManager[None]: ...


def experiment_of(name: str) -> str | None:
    """Return the experiment that a name belongs to, or None if it outlives experiments."""
    experiment, slash, _ = name.partition("/")
    return experiment if slash and not name.startswith(OUTLIVES) else None


class MappingStore:
    """A store over a mapping that the caller persists, without encryption, ages and audit lines.

    For simulated hospitals: Flower keeps their state between messages.
    """

    def __init__(self, mapping: MutableMapping[str, bytes]) -> None:
        self._mapping = mapping

    def get(self, name: str) -> bytes | None:
        return self._mapping.get(name)

    def put(self, name: str, value: bytes) -> None:
        self._mapping[name] = value

    def delete(self, prefix: str) -> None:
        for name in [name for name in self._mapping if name.startswith(prefix)]:
            del self._mapping[name]

    def experiments(self) -> list[str]:
        return sorted({found for name in self._mapping if (found := experiment_of(name))})

    def older_than(self, seconds: float) -> list[str]:
        return []

    def destroy(self, experiment: str) -> None:
        self.delete(f"{experiment}/")

    def renew_key(self, experiment: str) -> None:
        """Do nothing: what was deleted from a mapping is gone."""

    def append_audit(self, line: bytes) -> None:
        """Do nothing: nobody reads a simulated hospital's audit log."""

    def audit_line(self, number: int) -> bytes | None:
        return None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        before = dict(self._mapping)
        try:
            yield
        except BaseException:
            self._mapping.clear()
            self._mapping.update(before)
            raise
