"""`feddc.lab`: compare methods on the lab's engine, from a notebook or a script."""

import html
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from rich.console import Console

from lab.commands.run_command import write
from lab.engine import leg_by_leg
from lab.experiments import ExperimentError, PresetName, load_experiment
from lab.results.row import Row, rows_of
from lab.results.text import spread_text
from lab.sweep import Request, RunFolder, sweep
from lab.sweep.ready import ready
from lab.sweep.sweep_progress import SweepProgress

from .progress_line import progress_line
from .run_result import new_figure, pandas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "open_comparison", "run"]


class Comparison:
    """The results of `feddc.lab.run` or `feddc lab run`: a row for each method."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, Any] = RunFolder.open(path).read("results.json")

    def rows(self) -> list[Row]:
        return rows_of(self.results)

    def __repr__(self) -> str:
        lines = [f"{self.results['title']} ({self.path})"]
        lines += ["  ".join(cells) for cells in self._cells()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{title}</th>" for title in ("variant", "method", "test accuracy, %"))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in self._cells()
        )
        title = html.escape(self.results["title"])
        return f"<p>{title}</p><table><tr>{head}</tr>{body}</table>"

    def _cells(self) -> list[tuple[str, str, str]]:
        return [(row.variant, row.label, spread_text(row.headline, row)) for row in self.rows()]

    def frame(self) -> Any:
        """Return a tidy pandas DataFrame: a row for each variant, method and seed."""
        found = [
            {
                "experiment": self.results["experiment"],
                "variant": row.variant,
                "method": row.label,
                "seed": seed,
                "test_accuracy": value / 100,
            }
            for row in self.rows()
            if row.headline is not None
            for seed, value in zip(self.results["seeds"], row.headline.values, strict=False)
        ]
        return pandas().DataFrame(found)

    def plot(self) -> "Figure":
        """Return a figure of each method's mean accuracy, with its seeds as points."""
        figure = new_figure()
        axes = figure.add_subplot()
        rows = [row for row in self.rows() if row.headline is not None]
        for place, row in enumerate(rows):
            spread = row.headline
            if spread is not None:
                axes.plot(spread.values, [place] * len(spread.values), "o", color="C0", alpha=0.5)
                axes.plot([spread.mean], [place], "|", color="black", markersize=14)
        axes.set_yticks(range(len(rows)), [f"{row.label} {row.variant}".strip() for row in rows])
        axes.invert_yaxis()
        axes.set_xlabel("test accuracy, % (points: seeds, bar: mean)")
        return figure


def run(
    name: str,
    *,
    seeds: int | None = None,
    methods: tuple[str, ...] | list[str] = (),
    preset: PresetName = "laptop",
    run_dir: Path | str | None = None,
    workers: int | None = None,
    progress: bool = True,
) -> Comparison:
    """Compare all methods on one of the paper's experiments or ablations, see `feddc lab list`.

    >>> feddc.lab.run("mnist", seeds=3).frame()
    """
    if preset not in get_args(PresetName):
        raise ExperimentError(f"preset must be laptop, desk or full, got {preset!r}")
    experiment = load_experiment(name)
    experiment.preset(preset)  # refuses one that the experiment does not have
    request = Request(experiment, preset, tuple(methods), seeds)
    plan = ready(request)
    folder = RunFolder.for_request(request, None if run_dir is None else Path(run_dir))
    watch = _Line(Console(quiet=True))
    with folder.used_for(request), progress_line(lambda: watch.text, shown=progress):
        if threading.current_thread() is threading.main_thread():
            with leg_by_leg() as stop:  # Ctrl-C ends after the current leg
                sweep(plan, folder, watcher=watch, stop=stop, workers=workers)
        else:
            sweep(plan, folder, watcher=watch, stop=lambda: False, workers=workers)
        write(plan, folder)
    return Comparison(folder.path)


def open_comparison(path: Path | str) -> Comparison:
    """Return the results in a run folder of `feddc lab run`."""
    return Comparison(Path(path))


class _Line(SweepProgress):
    """Keeps its text for a thread that shows it."""

    text = ""

    def _show(self) -> None:
        self.text = str(self)
