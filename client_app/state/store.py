"""A hospital's persistent state: bytes by name, changed in transactions."""

from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

# Set when the agent finds that its state is older than what the coordinator has seen; `reset`
# removes it.
STOPPED = "stopped"


class StoreFull(Exception):
    """There is no space left for the state; nothing was changed."""


class Store(Protocol):
    """Bytes by name. A transaction is applied as a whole or not at all.

    Names are `<experiment>/<entry>`, or a plain name for what outlives experiments. Audit lines are
    append-only.
    """

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, value: bytes) -> None: ...

    def delete(self, prefix: str) -> None:
        """Delete every name that begins with `prefix`, and overwrite it where the disk allows."""

    def append_audit(self, line: bytes) -> None: ...

    def audit_line(self, number: int) -> bytes | None:
        """Return a line of the audit log, counted from 1, or None where lines are not stored."""

    def transaction(self) -> AbstractContextManager[None]: ...


class MappingStore:
    """A store over a mapping that the caller persists, without audit lines.

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
