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

from .event_file import Event
from .progress import RunProgress, bar_over_legs, shown

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
class HospitalRow:
    """A hospital as the coordinator sees it: codes and metrics only."""

    last_seen: float | None = None
    is_online: bool = False
    leg: int = 0
    loss: float | None = None
    problem: str = ""
    approval: str = ""  # why it has not begun
    is_parked: bool = False


@dataclass
class ExperimentView:
    """The state of an experiment, from its events and its SuperNodes."""

    state: RunProgress = field(default_factory=RunProgress)
    rows: dict[str, HospitalRow] = field(default_factory=dict)
    waiting: str = ""
    approval: str = ""

    def add(self, event: Event) -> None:
        self.state.add(event)
        match event.get("event"):
            case "approval":
                self._add_approval(event)
            case "start" | "generation":
                self._forget_approval()
                for name in event.get("hospitals", ()):
                    self._row(name)
            case "hospital":
                row = self._row(event["hospital"])
                row.problem = str(event.get("problem") or "")
                if not row.problem:
                    row.leg, row.last_seen = event["leg"], event.get("time")
                if event.get("loss") is not None:
                    row.loss = event["loss"]
            case "unanswered":
                for name in event["hospitals"]:
                    self._row(name).problem = f"no answer since {duration(event['seconds'])}"
                self.waiting = unanswered_text(event)
            case "leg":
                parked = set(event.get("parked", ()))
                for name, row in self.rows.items():
                    row.is_parked = name in parked
                for name, problem in dict(event.get("missing", {})).items():
                    self._row(name).problem = str(problem)
                self.waiting = ""
            case "waiting":
                self.waiting = waiting_text(event)

    def see(self, nodes: list[SeenNode]) -> None:
        for node in nodes:
            row = self._row(node.name)
            row.is_online = node.is_online
            row.last_seen = max(filter(None, (row.last_seen, node.last_seen)), default=None)

    def table(self, now: float) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("hospital", "last seen", "leg", "loss", ""):
            table.add_column(title, no_wrap=True)
        # Hospitals with a problem first: a screen has few lines.
        rows = sorted(self.rows.items(), key=lambda pair: (not _problem(pair[1]), pair[0]))
        for name, row in rows[:_MOST_ROWS]:
            loss = "–" if row.loss is None else f"{row.loss:.3f}"
            seen = "now" if row.is_online else ago(row.last_seen, now)
            table.add_row(Text(name), seen, str(row.leg or "–"), loss, Text(_problem(row)))
        if len(rows) > _MOST_ROWS:
            table.add_row(f"and {len(rows) - _MOST_ROWS} more")
        return table

    def _add_approval(self, event: Event) -> None:
        self._forget_approval()
        for name, reason in event["hospitals"].items():
            self._row(name).approval = str(reason)
        self.approval = approval_text(event)

    def _forget_approval(self) -> None:
        self.approval = ""
        for row in self.rows.values():
            row.approval = ""

    def _row(self, name: str) -> HospitalRow:
        return self.rows.setdefault(name, HospitalRow())


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
        state = watch.state
        progress.update(
            task, total=state.legs or None, completed=state.done, description=str(state)
        )
        lines = "\n".join(filter(None, (watch.waiting, watch.approval)))
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
                self._write(f"leg {event['leg']}: {unanswered_text(event)}")
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


def waiting_text(event: Event) -> str:
    """Describe what a paused experiment waits for."""
    return f"waiting: {event.get('problem') or 'for hospitals'}"


def approval_text(event: Event) -> str:
    """Name the hospitals that have not begun, and the fingerprint of what they approve."""
    who = ", ".join(f"{name} ({reason})" for name, reason in event["hospitals"].items())
    return f"waiting to begin: {who}; the experiment's fingerprint is {event['fingerprint']}"


def unanswered_text(event: Event) -> str:
    """Name the hospitals that have not answered in the present leg, and since when."""
    return f"waiting for {', '.join(event['hospitals'])} since {duration(event['seconds'])}"


def ago(moment: float | None, now: float) -> str:
    """Format the time since a moment in the largest unit that fits."""
    if moment is None:
        return "never"
    return f"{duration(max(0.0, now - moment))} ago"


def duration(seconds: float) -> str:
    """Format a time in the largest unit that fits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _problem(row: HospitalRow) -> str:
    words = ["parked" if row.is_parked else "", row.approval, row.problem]
    return ", ".join(filter(None, words))
