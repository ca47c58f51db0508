"""Progress of a run: a bar in a terminal, lines in a log, and a closing table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from operation.clock import Clock
from operation.runs.event_file import Event
from operation.runs.history import RunHistory
from operation.terminal import byte_size, counted, percent

# A line at an aggregation, unless the last one is this recent; at any leg after the longer time.
_LINE_SECONDS, _SILENT_SECONDS = 5.0, 30.0
# Not results: of use to the program only, or secret.
_NOT_LISTED = {"flower_runs.json", "lock", "secrets.json"}


@contextmanager
def shown(
    console: Console, *, bar: bool, clock: Clock | None = None
) -> Iterator[Callable[[Event], None]]:
    """Yield a function that shows the events of a run, as a bar or as lines."""
    if not bar:
        yield _Lines(console, clock or Clock())
        return
    with bar_over_legs(console) as progress:
        yield _Bar(progress, progress.add_task("starting Flower", total=None))


def bar_over_legs(console: Console) -> Progress:
    """Return a progress bar over the legs of a run, with a description."""
    columns = (  # all of them fit into the usual 80 characters
        BarColumn(bar_width=10),
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(min_width=7)),
        TimeRemainingColumn(compact=True, table_column=Column(min_width=5)),
        TextColumn("left", table_column=Column(min_width=4)),
    )
    return Progress(*columns, console=console, transient=True)


def progress_text(run: RunHistory) -> str:
    """Describe how far a run is, in one line."""
    parts = [f"leg {run.done}/{run.legs} {run.ending}".strip()]
    if run.loss is not None:
        parts.append(f"loss {run.loss:.3f}")
    if run.test_accuracy is not None:
        parts.append(f"test {percent(run.test_accuracy)}")
    if run.missing:
        parts.append(f"{len(run.missing)} missing")
    return ", ".join(parts)


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task, self._run = progress, task, RunHistory()

    def __call__(self, event: Event) -> None:
        run = self._run
        run.add(event)
        # Most events are those of single hospitals; only these change what is shown.
        if event.get("event") in ("start", "leg", "evaluation"):
            self._progress.update(
                self._task, total=run.legs, completed=run.done, description=progress_text(run)
            )


@dataclass
class _Lines:
    """One line at the start, then at most one every few seconds, mostly at an aggregation."""

    console: Console
    clock: Clock
    run: RunHistory = field(default_factory=RunHistory)
    began: float = field(init=False)
    last: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.last = self.clock.now()

    def __call__(self, event: Event) -> None:
        self.run.add(event)
        match event.get("event"):
            case "starting":
                self._write("starting Flower")
            case "start":
                self._write(
                    f"{len(event['hospitals'])} hospitals, {event['legs']} legs "
                    f"({event['rounds']} rounds)"
                )
            case "leg":
                is_aggregation = event["ending"] == "aggregation"
                silence = _LINE_SECONDS if is_aggregation else _SILENT_SECONDS
                if self._is_last or self.clock.now() - self.last >= silence:
                    self._write(progress_text(self.run))

    @property
    def _is_last(self) -> bool:
        return self.run.done == self.run.legs

    def _write(self, text: str) -> None:
        self.last = self.clock.now()
        self.console.print(
            f"{self.last - self.began:6.1f} s  {text}", highlight=False, markup=False
        )


def closing_table(summary: dict[str, Any], run_dir: Path) -> Table:
    """Return the result of a run and where its files are."""
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = _accuracies(summary) | {
        "legs": f"{summary['legs']} = {summary['hand_overs']} hand-overs "
        f"+ {summary['aggregations']} aggregations",
        "absent": _absences(summary["missing"]),
        "lost chains": f"{summary['lost_chains']} (models that were never aggregated)",
        "missed rounds": f"{summary['missed_rounds']} (not trained, over all models)",
        **_untrained(summary),
        **_privacy(summary),
        "sent": f"{byte_size(summary['bytes_up'])} up, {byte_size(summary['bytes_down'])} down",
        "hand-overs": {True: "sealed", False: "not sealed", None: "none"}[summary["sealed"]],
        "time": f"{summary['seconds']:.1f} s",
        "run folder": str(run_dir),
        "files": ", ".join(sorted(path.name for path in run_dir.iterdir() if _is_listed(path))),
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))
    table.columns[1].overflow = "fold"  # show the whole path
    return table


def _untrained(summary: dict[str, Any]) -> dict[str, str]:
    """Return which hospitals handed models on as they came, if any did."""
    untrained = summary.get("untrained", {})
    if not untrained:
        return {}
    legs = ", ".join(f"{name} in {counted(n, 'leg')}" for name, n in untrained.items())
    return {"untrained": f"{legs} (their privacy budget is spent)"}


def _privacy(summary: dict[str, Any]) -> dict[str, str]:
    """Return ε as scheduled, if there was noise."""
    if (spent := summary.get("scheduled_epsilon")) is None:
        return {}
    text = f"ε = {spent:.3g} (δ = {summary['delta']:g}) as scheduled, for a hospital in every leg"
    return {"privacy": f"{text}; what each has spent is in its own ledger"}


def _accuracies(summary: dict[str, Any]) -> dict[str, str]:
    """Return the accuracies on the test set, or on the hospitals' examples if there is none."""
    held_out = _held_out(summary)
    if summary["test_accuracy"] is None:
        unknown = "unknown: no test data here, and too few hospitals disclose their own figures"
        return held_out or {"accuracy": unknown}
    return {
        "test accuracy": f"{percent(summary['test_accuracy'])} (the final aggregate)",
        "balanced accuracy": f"{percent(summary['test_balanced_accuracy'])} "
        "(mean over the classes)",
        "mean over hospitals": f"{percent(summary['mean_client_accuracy'])} "
        "(each hospital's own model)",
    } | (held_out if summary["held_out"] else {})


def _held_out(summary: dict[str, Any]) -> dict[str, str]:
    """Return the accuracy on the hospitals' held-out examples, if it is known."""
    if total := summary["held_out"]:
        examples, hospitals = (counted(total[f"{what}s"], what) for what in ("example", "hospital"))
        return {
            "held-out accuracy": f"{percent(total['accuracy'])} (the final aggregate, {examples} "
            f"of {hospitals})",
            "held-out balanced": f"{percent(total['balanced_accuracy'])} (mean over the classes)",
        }
    if summary["mean_held_out_accuracy"] is None:
        return {}
    mean = percent(summary["mean_held_out_accuracy"])
    return {"held-out accuracy": f"{mean} (the final aggregate, mean over hospitals)"}


def _absences(missing: dict[str, int]) -> str:
    """List the hospitals that were missing, most legs first."""
    ordered = sorted(missing.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{name} in {counted(legs, 'leg')}" for name, legs in ordered) or "none"


def _is_listed(path: Path) -> bool:
    return path.is_file() and path.name not in _NOT_LISTED and path.stat().st_size > 0
