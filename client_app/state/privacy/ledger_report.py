"""The privacy ledger as a table and as JSON: ε of each experiment and of all together."""

from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from client_app.hospital_folder import HospitalFolder
from client_app.state.sqlite_store import SqliteStore
from operation.foreign_text import printable

from .ledger import PrivacyLedger, Totals
from .ledger_file import GENESIS, LedgerFile, Spent


@dataclass(frozen=True)
class ExperimentCost:
    """What one experiment has cost so far; legs without noise have no ε."""

    experiment: str
    releases: int  # with noise
    without_noise: int
    epsilon: float

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class LedgerReport:
    """The whole ledger; `problem` says if its file and the store do not fit together."""

    experiments: tuple[ExperimentCost, ...]
    epsilon: float
    delta: float
    lines: int
    problem: str = ""

    @property
    def without_noise(self) -> int:
        return sum(cost.without_noise for cost in self.experiments)

    def as_dict(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "without_noise": self.without_noise,
            "lines": self.lines,
            "experiments": [cost.as_dict() for cost in self.experiments],
            "problem": self.problem,
        }


def read_ledger(folder: HospitalFolder, delta: float) -> LedgerReport:
    """Return the ledger; works while the agent runs."""
    # The file first: a running agent writes it before the store.
    file = LedgerFile(folder.privacy_ledger_file)
    totals = Totals()
    if folder.store_file.exists():
        store = SqliteStore.for_reading(folder.store_file)
        try:
            totals = PrivacyLedger(store).totals()
        finally:
            store.close()
    known = file.lines[: totals.lines]
    last = known[-1].digest if known else GENESIS
    problem = ""
    if last != totals.last or len(file.lines) > totals.lines + 1:
        problem = (
            f"the ledger's file has {len(file.lines)} lines, the store knows {totals.lines}: one "
            "was restored from a backup, and the agent does not serve; see `feddc hospital reset`"
        )
    for line in file.lines[totals.lines :]:
        totals = totals.after(line)  # an interrupted request, or a restored store
    return LedgerReport(
        tuple(_cost(name, entries, delta) for name, entries in totals.spent.items()),
        _epsilon(totals.everything(), delta),
        delta,
        totals.lines,
        problem,
    )


def ledger_table(report: LedgerReport) -> Table:
    """Return a row for each experiment."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("experiment", "releases with noise", "ε alone", "legs without noise"):
        table.add_column(heading, justify="left" if heading == "experiment" else "right")
    for cost in report.experiments:
        table.add_row(
            Text(printable(cost.experiment)),
            f"{cost.releases:,}",
            f"{cost.epsilon:.4g}" if cost.releases else "–",
            f"{cost.without_noise:,}" if cost.without_noise else "–",
        )
    return table


def _cost(experiment: str, spent: tuple[Spent, ...], delta: float) -> ExperimentCost:
    noised = sum(count for multiplier, _, count in spent if multiplier)
    without = sum(count for multiplier, _, count in spent if not multiplier)
    return ExperimentCost(experiment, noised, without, _epsilon(spent, delta))


def _epsilon(spent: tuple[Spent, ...], delta: float) -> float:
    if not any(multiplier for multiplier, _, _ in spent):
        return 0.0
    from client_app.hospital.privacy.spending import total_epsilon  # takes seconds: torch

    return total_epsilon(spent, delta)
