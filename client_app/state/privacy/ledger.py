"""One ledger per hospital, over all experiments: what has been released, and what it cost.

Every leg that trains on patients is charged before it trains: first a line in the ledger's file,
then, in the transaction with the answer, the totals in the store. A line that is one ahead of the
store is of a request that was interrupted; it counts, once. If the file and the store differ by
more, one of them was restored from a backup: the agent stops.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, TypeAdapter

from client_app.state.store import STOPPED, Store
from protocol.canonical import canonical_json, read_canonical

from .ledger_file import GENESIS, LedgerFile, LedgerLine, Spent

_RESET = "reset"


class Totals(BaseModel):
    """All charges, by experiment, and the last line of the file that they contain."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lines: int = 0
    last: str = GENESIS
    request: str = ""  # of the last line
    spent: Mapping[str, tuple[Spent, ...]] = {}

    def after(self, line: LedgerLine) -> "Totals":
        earlier = self.spent.get(line.experiment, ())
        spent = {**self.spent, line.experiment: _added(earlier, line.releases)}
        return Totals(lines=line.number, last=line.digest, request=line.request, spent=spent)

    def everything(self, last: str = "") -> tuple[Spent, ...]:
        """Return the releases of all experiments, at the end those of the experiment `last`.

        So what grows from leg to leg is at the end, and ε of the rest need not be composed again.
        """
        names = sorted(self.spent, key=lambda name: (name == last, name))
        return tuple(entry for name in names for entry in self.spent[name])


class PrivacyLedger:
    """The ledger in a hospital's store, and its file; simulated hospitals have no file."""

    # No slash: it outlives experiments.
    NAME = "privacy-ledger"

    def __init__(self, store: Store, file: LedgerFile | None = None) -> None:
        self._store = store
        self._file = file

    def totals(self) -> Totals:
        stored = self._store.get(self.NAME)
        return Totals() if stored is None else read_canonical(_TOTALS, stored)

    def reconcile(self) -> None:
        """Count the line of an interrupted request; stop the agent if file and store differ."""
        totals, file = self.totals(), self._file
        if file is None or (len(file.lines), file.last) == (totals.lines, totals.last):
            return
        newest = file.lines[-1] if file.lines else None
        with self._store.transaction():
            if newest is not None and (newest.number - 1, newest.previous) == (
                totals.lines,
                totals.last,
            ):
                self._put(totals.after(newest))
            else:
                self._store.put(STOPPED, b"the privacy ledger's file and the store differ")

    def charge(self, request: bytes, experiment: str, leg: int, releases: Iterable[Spent]) -> None:
        """Record releases, before anything is computed for them; a repeated request counts once.

        Called in the transaction of the request; `request` is its digest.
        """
        totals = self.totals()
        if totals.request == request.hex():
            return  # it was interrupted after this line was written
        line = LedgerLine(
            number=totals.lines + 1,
            previous=totals.last,
            time=_now(),
            request=request.hex(),
            experiment=experiment,
            leg=leg,
            releases=_added((), releases),
        )
        if self._file is not None:
            self._file.append(line)
        self._put(totals.after(line))

    def merge(self) -> None:
        """Continue after one of the two was restored: of file and store, what says more counts.

        Called in a transaction, by the operator's `reset`.
        """
        file, stored = self._file, self.totals()
        if file is None:
            return
        for experiment, entries in stored.spent.items():
            missing = _missing(_from_lines(file.lines).spent.get(experiment, ()), entries)
            if missing:
                line = LedgerLine(
                    number=len(file.lines) + 1,
                    previous=file.last,
                    time=_now(),
                    request=_RESET,
                    experiment=experiment,
                    leg=0,
                    releases=missing,
                )
                file.append(line)
        self._put(_from_lines(file.lines))

    def _put(self, totals: Totals) -> None:
        self._store.put(self.NAME, canonical_json(totals))


def _from_lines(lines: Sequence[LedgerLine]) -> Totals:
    totals = Totals()
    for line in lines:
        totals = totals.after(line)
    return totals


def _added(earlier: Iterable[Spent], more: Iterable[Spent]) -> tuple[Spent, ...]:
    """Return releases of the same kind together."""
    counts: dict[tuple[float, float], int] = {}
    for multiplier, rate, count in (*earlier, *more):
        counts[multiplier, rate] = counts.get((multiplier, rate), 0) + count
    return tuple((*kind, count) for kind, count in sorted(counts.items()))


def _missing(known: Iterable[Spent], wanted: Iterable[Spent]) -> tuple[Spent, ...]:
    counts = {(multiplier, rate): count for multiplier, rate, count in known}
    missing = ((m, rate, count - counts.get((m, rate), 0)) for m, rate, count in wanted)
    return tuple(entry for entry in missing if entry[2] > 0)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_TOTALS: TypeAdapter[Totals] = TypeAdapter(Totals)
