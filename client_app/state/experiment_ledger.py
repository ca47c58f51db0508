"""The ledger: which experiments this hospital was asked for, and what became of each."""

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from protocol.canonical import canonical_bytes

from .store import Store

State = Literal["waiting", "agreed", "rejected", "closed"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class PrivacyTerms(BaseModel):
    """What noise promises: ε of the whole experiment, or None for no bound, at the policy's δ.

    With `cancelled` noise the promise holds against the coordinator and `colluding` members.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    unit: Literal["patient", "hospital"]
    epsilon: float | None
    delta: float
    cancelled: bool
    colluding: int


class Terms(BaseModel):
    """What an experiment asks of this hospital, as its operator is shown it.

    `hand_overs` and `aggregations` count the legs that end in each. In a random schedule
    `aggregations` is the most that the agent serves, and every leg may be a hand-over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    study: str
    members: int
    coordinator: str
    model: str
    model_options: str
    parameters: int
    training: dict[str, bool | int | float | str]
    rounds: int
    legs: int
    hand_overs: int
    aggregations: int
    is_random: bool
    fraction: float
    sealed: bool
    averaging: Literal["secure", "plain"]
    aggregate: Literal["verified", "same"]
    minimum_cohort: int = 2  # an older store has no value
    init: Literal["shared", "own"]
    first_model: str | None  # the digest of one that is given
    privacy: PrivacyTerms | None = None


class LedgerEntry(BaseModel):
    """One experiment: what was asked, under which roster, and its state since when (UTC)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    experiment: str
    fingerprint: str
    roster: str
    state: State
    since: str = Field(default_factory=_now)
    terms: Terms

    def with_state(self, state: State) -> "LedgerEntry":
        return self.model_copy(update={"state": state, "since": _now()})


class ExperimentLedger:
    """The entries of all experiments in a hospital's store, oldest first."""

    # No slash: experiments keep what belongs to one of them under `<experiment>/…`.
    NAME = "experiments"

    def __init__(self, store: Store) -> None:
        self._store = store

    def entries(self) -> tuple[LedgerEntry, ...]:
        stored = self._store.get(self.NAME)
        return () if stored is None else _ENTRIES.validate_json(stored)

    def put(self, entry: LedgerEntry) -> None:
        """Add an entry, or replace the one with its fingerprint."""
        entries = {known.fingerprint: known for known in self.entries()}
        self._write(tuple((entries | {entry.fingerprint: entry}).values()))

    def keep(self, entries: tuple[LedgerEntry, ...]) -> None:
        """Drop all other entries."""
        self._write(entries)

    def agreed(self, experiment: str) -> LedgerEntry | None:
        """Return the entry of an experiment that is under way."""
        running = (e for e in self.entries() if e.experiment == experiment and e.state == "agreed")
        return next(running, None)

    def close(self, experiment: str) -> None:
        """Record that an experiment is over here."""
        if entry := self.agreed(experiment):
            self.put(entry.with_state("closed"))

    def _write(self, entries: tuple[LedgerEntry, ...]) -> None:
        self._store.put(self.NAME, canonical_bytes([entry.model_dump() for entry in entries]))


_ENTRIES: TypeAdapter[tuple[LedgerEntry, ...]] = TypeAdapter(tuple[LedgerEntry, ...])
