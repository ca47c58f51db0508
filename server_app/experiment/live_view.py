"""Live view of an experiment: a progress bar and a table of hospitals, or lines in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from operation.runs.event_file import Event
from operation.runs.history import (
    HospitalHistory,
    RunHistory,
    approval_text,
    duration,
    waiting_text,
)

from .progress import bar_over_legs, progress_text, shown

_MOST_ROWS = 20


class SeenNode(Protocol):
    """The status of a hospital's SuperNode."""

    @property
    def name(self) -> str: ...
    @property
    def is_online(self) -> bool: ...
    @property
    def last_seen(self) -> float | None: ...


@dataclass
class ExperimentView:
    """An experiment in a terminal: its history, and which SuperNodes are connected."""

    run: RunHistory = field(default_factory=RunHistory)
    online: dict[str, bool] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        self.run.add(event)

    def see(self, nodes: list[SeenNode]) -> None:
        for node in nodes:
            row = self.run.hospital(node.name)
            self.online[node.name] = node.is_online
            row.last_seen = max(filter(None, (row.last_seen, node.last_seen)), default=None)

    def table(self, now: float) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("hospital", "last seen", "leg", "loss", ""):
            table.add_column(title, no_wrap=True)
        # Hospitals with a problem first: a screen has few lines.
        rows = sorted(self.run.hospitals.items(), key=lambda pair: (not _problem(pair[1]), pair[0]))
        for name, row in rows[:_MOST_ROWS]:
            loss = "–" if row.loss is None else f"{row.loss:.3f}"
            seen = "now" if self.online.get(name) else ago(row.last_seen, now)
            table.add_row(Text(name), seen, str(row.leg or "–"), loss, Text(_problem(row)))
        if len(rows) > _MOST_ROWS:
            table.add_row(f"and {len(rows) - _MOST_ROWS} more")
        return table


class Display(Protocol):
    def event(self, event: Event) -> None: ...
    def nodes(self, nodes: list[SeenNode]) -> None: ...


@contextmanager
def watched(console: Console) -> Iterator[Display]:
    """Yield a display for an experiment: live in a terminal, lines otherwise."""
    if not console.is_terminal:
        with shown(console, bar=False) as show:
            yield _Lines(console, show)
        return
    progress = bar_over_legs(console)
    task = progress.add_task("starting", total=None)
    watch = ExperimentView()

    def drawn() -> Group:
        run = watch.run
        progress.update(
            task, total=run.legs or None, completed=run.done, description=progress_text(run)
        )
        lines = "\n".join(filter(None, (waiting_text(run.waiting), approval_text(run.approval))))
        return Group(progress, watch.table(time.time()), Text(lines))

    with Live(console=console, transient=True, get_renderable=drawn, refresh_per_second=4):
        yield _Screen(watch)


@dataclass
class _Screen:
    watch: ExperimentView

    def event(self, event: Event) -> None:
        self.watch.add(event)

    def nodes(self, nodes: list[SeenNode]) -> None:
        self.watch.see(nodes)


@dataclass
class _Lines:
    """The lines of a simulation, and one for every hospital that is missing or back."""

    console: Console
    show: Callable[[Event], None]
    missing: dict[str, str] = field(default_factory=dict)
    waiting: str = ""
    approval: str = ""

    def event(self, event: Event) -> None:
        self.show(event)
        match event.get("event"):
            case "leg":
                self._print_missing(event["leg"], dict(event.get("missing", {})))
                self.waiting = ""
            case "unanswered":
                self._write(f"leg {event['leg']}: {waiting_text(event)}")
            case "approval" if (text := approval_text(event)) != self.approval:
                self.approval = text
                self._write(text)
            case "waiting" if (text := waiting_text(event)) != self.waiting:
                self.waiting = text
                self._write(text)

    def nodes(self, nodes: list[SeenNode]) -> None:
        pass

    def _print_missing(self, leg: int, missing: dict[str, str]) -> None:
        for name, problem in missing.items():
            if self.missing.get(name) != problem:
                self._write(f"leg {leg}: {name} is missing ({problem})")
        for name in self.missing.keys() - missing.keys():
            self._write(f"leg {leg}: {name} is back")
        self.missing = missing

    def _write(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)


def ago(moment: float | None, now: float) -> str:
    """Format the time since a moment in the largest unit that fits."""
    if moment is None:
        return "never"
    return f"{duration(max(0.0, now - moment))} ago"


def _problem(row: HospitalHistory) -> str:
    words = ["parked" if row.is_parked else "", row.approval, row.problem]
    return ", ".join(filter(None, words))
