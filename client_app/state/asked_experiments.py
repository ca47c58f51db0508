"""The experiments that this hospital was asked for, each with the operator's decision on it."""

from dataclasses import dataclass
from typing import Any, Literal

from client_app.hospital_folder import HospitalFolder

from .decisions import DecisionFile, DecisionsError
from .experiment_ledger import ExperimentLedger, LedgerEntry, Terms
from .sqlite_store import SqliteStore

AskedState = Literal["waiting", "approved", "running", "rejected", "closed"]


@dataclass(frozen=True)
class AskedExperiment:
    """What was asked, and where it stands since when (UTC)."""

    experiment: str
    fingerprint: str
    state: AskedState
    since: str
    terms: Terms

    def as_dict(self) -> dict[str, Any]:
        """Return the experiment for JSON."""
        return {
            "experiment": self.experiment,
            "state": self.state,
            "since": self.since,
            "fingerprint": self.fingerprint,
            **self.terms.model_dump(),
        }


def asked_experiments(folder: HospitalFolder) -> list[AskedExperiment]:
    """Return all experiments that were asked for, oldest first; works while the agent runs."""
    if not folder.store_file.exists():
        return []
    store = SqliteStore.for_reading(folder.store_file)
    try:
        entries = ExperimentLedger(store).entries()
    finally:
        store.close()
    decisions = DecisionFile(folder.decisions_file)
    return [
        AskedExperiment(
            entry.experiment,
            entry.fingerprint,
            _state(entry, decisions),
            entry.since,
            entry.terms,
        )
        for entry in entries
    ]


def choose(folder: HospitalFolder, experiment: str, fingerprint: str | None) -> AskedExperiment:
    """Return the experiment to decide on; raise DecisionsError if it is not clear which."""
    asked = [one for one in asked_experiments(folder) if one.experiment == experiment]
    if not asked:
        raise DecisionsError(
            f"the coordinator has asked for no experiment {experiment!r}; "
            "`feddc hospital experiments` lists those it has asked for"
        )
    if fingerprint is None:
        if len(asked) > 1:
            raise DecisionsError(
                f"{len(asked)} different experiments are called {experiment}: choose one with "
                "--fingerprint, and ask the coordinator why"
            )
        (found,) = asked
    else:
        wanted = "".join(fingerprint.split()).upper()
        matching = [one for one in asked if one.fingerprint.replace(" ", "") == wanted]
        if not matching:
            raise DecisionsError(
                f"--fingerprint {fingerprint}: {experiment} has the fingerprint "
                f"{' or '.join(one.fingerprint for one in asked)}; nothing was decided"
            )
        (found,) = matching
    if found.state == "closed":
        raise DecisionsError(f"{experiment} is over: there is nothing to decide")
    return found


def _state(entry: LedgerEntry, decisions: DecisionFile) -> AskedState:
    if entry.state == "closed":
        return "closed"
    decision = decisions.get(entry.fingerprint)
    if decision == "rejected":
        return "rejected"
    if entry.state == "agreed":
        return "running"
    return "approved" if decision == "approved" else "waiting"
