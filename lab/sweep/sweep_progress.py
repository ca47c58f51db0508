"""Progress of a sweep: one bar over all experiments in a terminal, plain lines in a log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from lab.sweep.plan import SweepPlan
from lab.sweep.record import Record
from lab.sweep.trial import Trial

_LINE_SECONDS = 10.0


class SweepProgress:
    """Sums up the progress over all plans of a command.

    A client-round of one experiment can take a hundred times as long as one of another. The time
    left is therefore that of the current experiment, from its own speed; later ones are named.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._printed = self.clock()
        self._left: dict[str, tuple[int, int]] = {}
        self._now = ""
        self._done: dict[str, int] = {}
        self._started: dict[str, float] = {}
        self._under_way: dict[str, int] = {}
        self._trials = 0

    def expect(self, plan: SweepPlan, trials: int, client_rounds: int) -> None:
        """Add the work of a later plan."""
        self._left[plan.experiment.name] = (trials, client_rounds)

    def planned(self, plan: SweepPlan, trials: int, client_rounds: int) -> None:
        self._now = plan.experiment.name
        self._started.setdefault(self._now, self.clock())
        self.expect(plan, trials, client_rounds)
        self._show()

    def progress(self, trial: Trial, client_rounds: int) -> None:
        self._under_way[trial.key] = client_rounds
        self._show()

    def done(self, trial: Trial, record: Record) -> None:
        self._under_way.pop(trial.key, None)
        trials, rounds = self._left[self._now]
        self._left[self._now] = (trials - 1, rounds - trial.client_rounds)
        self._done[self._now] = self._done.get(self._now, 0) + trial.client_rounds
        self._trials += 1
        self._show()

    @property
    def client_rounds(self) -> tuple[int, int]:
        """Client-rounds that are done, and their total."""
        done = sum(self._done.values()) + sum(self._under_way.values())
        return done, sum(self._done.values()) + sum(rounds for _, rounds in self._left.values())

    @property
    def speed(self) -> float:
        """Client-rounds per second of the current experiment."""
        here = self._done.get(self._now, 0) + sum(self._under_way.values())
        return here / max(1e-9, self.clock() - self._started.get(self._now, self._began))

    @property
    def seconds_left(self) -> float | None:
        if not self._done.get(self._now):
            return None  # unknown while the first trials are still loading
        _, left = self._left[self._now]
        return (left - sum(self._under_way.values())) / self.speed

    def __str__(self) -> str:
        trials = self._trials + sum(left for left, _ in self._left.values())
        left = "" if self.seconds_left is None else f", {_time(self.seconds_left)} left"
        if left and (later := [name for name in self._left if name not in self._started]):
            left += f", then {', '.join(later)}"
        speed = f", {self.speed:,.0f} client-rounds/s" if self.speed >= 1 else ""
        return f"{self._now}: {self._trials} of {trials} trainings{speed}{left}"

    def _show(self) -> None:
        if self.clock() - self._printed >= _LINE_SECONDS:
            self._printed = self.clock()
            since = self._printed - self._began
            self._console.print(f"{since:6.0f} s  {self}", highlight=False, markup=False)


class _Bar(SweepProgress):
    def __init__(self, console: Console, progress: Progress) -> None:
        super().__init__(console)
        self._progress, self._task = progress, progress.add_task("starting", total=None)

    def _show(self) -> None:
        done, total = self.client_rounds
        self._progress.update(self._task, completed=done, total=total, description=str(self))


@contextmanager
def shown_progress(console: Console) -> Iterator[SweepProgress]:
    """Yield a SweepProgress that displays itself on the console."""
    if not console.is_terminal:
        yield SweepProgress(console)
        return
    columns = (
        BarColumn(bar_width=10),
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(min_width=7)),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Bar(console, progress)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes}:{rest:02} min"
