"""A finished or running run as an object: table, frame, plot and chain map."""

import html
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learning.extras import install
from operation.runs.event_file import FILE_NAME, EventFile
from operation.runs.history import RunHistory
from operation.runs.pooling import gives_away, is_pooled
from server_app.pages.chain_map import chain_map
from server_app.pages.run_view import RunRecord, coordinator_view

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METRICS = ("loss", "accuracy", "held_out_loss", "held_out_accuracy")
_MOST_LINES = 12


class RunResult:
    """A run folder of `feddc.simulate`, `feddc simulate` or a study's experiment.

    >>> run = feddc.open_run("runs/one")
    >>> run.frame().query("metric == 'test_accuracy'")
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._record = RunRecord.read(path)

    @property
    def settings(self) -> dict[str, Any]:
        return self._record.settings

    @property
    def summary(self) -> dict[str, Any]:
        """The contents of summary.json; empty before the end."""
        return self._record.summary

    @property
    def history(self) -> RunHistory:
        return self._record.history

    @property
    def test_accuracy(self) -> float | None:
        """The last aggregate's accuracy on the test set."""
        return self.history.test_accuracy

    @cached_property
    def _facts(self) -> list[tuple[str, str]]:
        view = coordinator_view(self._record)
        return [("run", str(self.path)), ("state", view["state"]), *map(tuple, view["facts"])]

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self._facts)
        return "\n".join(f"{name:{width}}  {value}" for name, value in self._facts)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts
        )
        return f"<table>{rows}</table>"

    def rows(self) -> list[dict[str, Any]]:
        """Return every figure of the run, one per row: leg, round, hospital, metric, value.

        `hospital` is empty for figures of aggregates and for means over the hospitals.
        """
        found: dict[tuple[int, str, str], dict[str, Any]] = {}
        last_round: dict[int, int] = {}

        def add(leg: int, hospital: str, metric: str, value: float | None) -> None:
            if value is not None:  # a leg that was written again counts as written last
                row = {"leg": leg, "hospital": hospital, "metric": metric, "value": value}
                found[leg, hospital, metric] = row

        for event in EventFile(self.path / FILE_NAME).new_events():
            match event["event"]:
                case "hospital":
                    for metric in _METRICS:
                        add(event["leg"], event["hospital"], metric, event.get(metric))
                case "leg":
                    last_round[event["leg"]] = event["last_round"] + 1
                    for metric in _METRICS:  # held-out ones are of a secure sum
                        add(event["leg"], "", metric, event.get(metric))
                case "evaluation":
                    for metric in ("test_loss", "test_accuracy", "test_balanced_accuracy"):
                        add(event["leg"], "", metric, event.get(metric))
        return [
            {"leg": row["leg"], "round": last_round.get(leg, leg)} | row
            for (leg, _, _), row in sorted(found.items())
        ]

    def rows_to_hand_out(self, *, with_hospitals: bool) -> list[dict[str, Any]]:
        """Return `rows` without what tells one hospital's own figures.

        In a real study means over fewer than three hospitals are left out, and `with_hospitals`
        adds those that publish. Simulated hospitals have no policies.
        """
        rows = self.rows()
        if self.history.is_simulated:
            return [row for row in rows if with_hospitals or not row["hospital"]]
        publishing = {name for name, one in self.history.hospitals.items() if one.publishes}
        disclosed: dict[tuple[int, str], list[str]] = {}
        for row in rows:
            if row["hospital"]:
                disclosed.setdefault((row["leg"], row["metric"]), []).append(row["hospital"])

        def is_shown(row: dict[str, Any]) -> bool:
            if row["hospital"]:
                return with_hospitals and row["hospital"] in publishing
            if row["metric"] not in _METRICS:
                return True  # of the coordinator's own test data
            names = disclosed.get((row["leg"], row["metric"]), [])
            if not names:  # a secure sum
                return is_pooled(self._answered.get(row["leg"], 0))
            others = len(set(names) - publishing)
            return is_pooled(len(names)) and not (with_hospitals and gives_away(others))

        return [row for row in rows if is_shown(row)]

    @cached_property
    def _answered(self) -> dict[int, int]:
        """How many hospitals answered in each leg."""
        events = EventFile(self.path / FILE_NAME).new_events()
        return {one["leg"]: one.get("answered", 0) for one in events if one["event"] == "leg"}

    def frame(self) -> Any:
        """Return `rows` as a tidy pandas DataFrame (extra `notebook`)."""
        return pandas().DataFrame(
            self.rows(), columns=["leg", "round", "hospital", "metric", "value"]
        )

    def plot(self) -> "Figure":
        """Return a figure of the accuracies over rounds."""
        figure = new_figure()
        axes = figure.add_subplot()
        for curve, column, label in (
            (self.history.test, 2, "test, each aggregate"),
            (self.history.training, 2, "training, mean over hospitals"),
            (self.history.held_out, 2, "held-out, mean over hospitals"),
        ):
            if curve.points:
                xs = [point[0] for point in curve.points]
                axes.plot(xs, [100 * point[column] for point in curve.points], label=label)
        axes.set(xlabel="rounds (local updates)", ylabel="accuracy, %", ylim=(0, 101))
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
        return figure

    def chain_map(self) -> "Figure":
        """Return a figure of the chains since the last two aggregations.

        Above 12 hospitals it shows how many hospitals each chain has seen.
        """
        seen = chain_map(self.history, self._record.routes)
        if seen is None or seen["window"] is None:
            raise ValueError(f"{self.path} has no routes: they were deleted, or no leg has ended")
        figure = new_figure()
        axes = figure.add_subplot()
        window, names = seen["window"], seen["names"]
        if len(names) > _MOST_LINES:
            counts = [chain["seen"] for chain in window["chains"]]
            axes.bar(range(1, len(counts) + 1), counts)
            axes.set(xlabel="chain", ylabel="hospitals seen", ylim=(0, len(names)))
            return figure
        for chain in window["chains"]:
            legs, rows = zip(*chain["stops"], strict=True)
            axes.plot(legs, rows, marker="o", markersize=3, color=f"C{chain['number'] % 10}")
        for leg in window["aggregations"]:
            axes.axvline(leg + 0.5, color="0.5", linewidth=2)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("leg (grey bars: aggregations)")
        return figure


def new_figure() -> "Figure":
    from .figure import NotebookFigure

    return NotebookFigure(figsize=(7, 4), dpi=110, layout="constrained")


def pandas() -> Any:
    """Return pandas, which only `frame` needs."""
    try:
        import pandas as found
    except ImportError as error:
        raise ImportError(f"frame() needs pandas: {install('notebook')}") from error
    return found
