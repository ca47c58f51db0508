"""What a hospital remembers, and the promise that an answer and its traces appear together."""

from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

# Written when the agent finds that its memory is older than the world's; its operator removes it.
STOPPED = "stopped"


class Store(Protocol):
    """Bytes by name, changed in transactions: all of one happens, or nothing.

    Names are `<experiment>/<what>`, or a plain name for what outlives experiments. Audit lines are
    only ever added.
    """

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, value: bytes) -> None: ...

    def delete(self, prefix: str) -> None:
        """Forget every name that begins with `prefix`, beyond recovery as far as that can be."""

    def append_audit(self, line: bytes) -> None: ...

    def audit_line(self, number: int) -> bytes | None:
        """Return a line of the audit trail, counted from 1, where lines are kept."""

    def transaction(self) -> AbstractContextManager[None]: ...


class MappingStore:
    """A store over a mapping that somebody else keeps; its audit lines are not kept, only counted.

    For simulated hospitals: Flower keeps their memory between messages.
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
        """Nothing reads a simulated hospital's log."""

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
