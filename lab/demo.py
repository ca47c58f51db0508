"""`feddc lab demo`: compare daisy-chaining with the alternatives, first fast, then on Flower.

The lab's engine gives all figures within seconds. Then the same experiments run on Flower's
simulation engine, which starts once for all of them, with the real messages and envelopes.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.baselines import train_pooled
from lab.engine import run as run_in_lab
from lab.flower.simulate import SimulationFailed, default_run_dir, simulate_each
from operation import files
from operation.config import Scalar
from operation.runs.event_file import Event
from operation.terminal import activity, percent
from server_app.config.run_config import Settings
from server_app.experiment.progress import shown
from server_app.pages.report import PUBLIC, report
from server_app.pages.run_view import RunRecord, public_view

# Ninety images of handwritten digits in total, six per hospital: too few for any one of them.
TASK: dict[str, Scalar] = {
    "dataset": "digits",
    "hospitals": 15,
    "examples": 6,
    "held-out": 6,
    "rounds": 100,
    "model": "mlp",
    "model-options": '{"hidden": [64]}',
    "learning-rate": 0.2,
    "seed": 0,
}
PERIOD = 10
ALONE, POOLED = "each hospital alone", "all data pooled"
METHODS: dict[str, dict[str, Scalar]] = {
    f"FedDC(1, {PERIOD})": {"daisy-period": 1, "aggregation-period": PERIOD},
    f"FedAvg({PERIOD})": {"daisy-period": 0, "aggregation-period": PERIOD},
    "FedAvg(1)": {"daisy-period": 0, "aggregation-period": 1},
}
_SAME = 0.0005  # accuracies that round to the same tenth of a per cent


@dataclass(frozen=True)
class DemoRow:
    """One method; `readable` counts the hospital models that the coordinator could read."""

    method: str
    test_accuracy: float
    hand_overs: int = 0
    aggregations: int = 0
    readable: int | None = 0
    bytes_sent: int = 0
    seconds: float = 0.0


def demo(*, json_output: bool) -> int:
    """Compare the methods; return the exit code."""
    screen = Console(stderr=True)
    console = Console()
    base = Settings.from_run_config(TASK, source="demo")
    settings = {name: _with(periods) for name, periods in METHODS.items()}
    with activity("training on the lab's engine", quiet=json_output):
        quick = [_alone(), *(_in_lab(name, one) for name, one in settings.items()), _pooled(base)]
    if not json_output:
        _show_first(console, quick)
    folder = default_run_dir()
    try:
        summaries = _on_flower(settings, folder, screen)
    except SimulationFailed as failure:
        screen.print(f"the runs on Flower failed: {failure.reason}", markup=False)
        return 1
    rows = [_confirmed(row, summaries.get(row.method)) for row in quick]
    _write_report(settings, folder)
    differing = [
        f"{now.method}: {percent(now.test_accuracy)} on Flower, "
        f"{percent(before.test_accuracy)} in the lab"
        for before, now in zip(quick, rows, strict=True)
        if abs(before.test_accuracy - now.test_accuracy) > _SAME
    ]
    if json_output:
        console.print_json(json.dumps([asdict(row) for row in rows]), indent=None)
    else:
        _show(console, rows)
        console.print(f"Report: {folder / PUBLIC}", soft_wrap=True, highlight=False)
    if differing:
        screen.print(f"The engines differ: {'; '.join(differing)}", markup=False)
    return 1 if differing else 0


def _with(periods: dict[str, Scalar]) -> Settings:
    return Settings.from_run_config(TASK | periods, source="demo")


# --- the lab's engine -----------------------------------------------------------------------------


def _in_lab(method: str, settings: Settings) -> DemoRow:
    outcome = run_in_lab(settings, evaluate_every=settings.algorithm.rounds)
    history = outcome.history
    return DemoRow(
        method,
        history.test_accuracy or 0.0,
        history.hand_overs,
        history.aggregations,
        seconds=outcome.seconds,
    )


def _alone() -> DemoRow:
    """Train without any communication: the models just before an only aggregation at the end."""
    outcome = run_in_lab(_with({"daisy-period": 0, "aggregation-period": 0}))
    models = outcome.history.clients
    accuracy = sum(metrics.accuracy for metrics in models) / len(models)
    return DemoRow(ALONE, accuracy, seconds=outcome.seconds)


def _pooled(settings: Settings) -> DemoRow:
    started = time.monotonic()
    accuracy = train_pooled(settings).accuracy
    return DemoRow(POOLED, accuracy, readable=None, seconds=time.monotonic() - started)


# --- Flower's engine ------------------------------------------------------------------------------


def _on_flower(
    settings: dict[str, Settings], folder: Path, screen: Console
) -> dict[str, dict[str, Any]]:
    """Run all methods on one start of Flower; return each one's summary."""
    names = list(settings)
    with shown(screen, bar=screen.is_terminal) as show:

        def on_event(number: int, event: Event) -> None:
            if event.get("event") == "start":
                screen.print(f"({number + 1} of {len(names)}) {names[number]} on Flower's engine")
            show(event)

        folders = [folder / _folder_name(name) for name in names]
        summaries = simulate_each(list(settings.values()), folders, on_event=on_event)
    return dict(zip(names, summaries, strict=True))


def _confirmed(row: DemoRow, summary: dict[str, Any] | None) -> DemoRow:
    """Return a row with Flower's figures; training alone and pooling have no federation."""
    if summary is None:
        return row
    return DemoRow(
        row.method,
        summary["test_accuracy"],
        summary["hand_overs"],
        summary["aggregations"],
        summary["readable_models"],
        summary["bytes_up"] + summary["bytes_down"],
        summary["seconds"],
    )


def _write_report(settings: dict[str, Settings], folder: Path) -> None:
    views = []
    for name in settings:
        view = public_view(RunRecord.read(folder / _folder_name(name)))
        views.append(view | {"title": name})
    files.replace(folder / PUBLIC, report(views, "FedDC beside FedAvg: 15 hospitals").encode())


def _folder_name(method: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in method.lower()).strip("-")


# --- tables ---------------------------------------------------------------------------------------


def _show_first(console: Console, rows: list[DemoRow]) -> None:
    table = Table(title="Digits: 15 hospitals with 6 images each, on the lab's engine")
    table.add_column("method")
    for column in ("test\naccuracy", "hand-\novers", "aggre-\ngations"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    console.print("Next: the same on Flower's simulation engine, with sealed models.\n")


def _show(console: Console, rows: list[DemoRow]) -> None:
    table = Table(title="Digits: 15 hospitals with 6 images each, 100 rounds, one seed")
    table.add_column("method")
    for column in (
        "test\naccuracy",
        "hand-\novers",
        "aggre-\ngations",
        "models the\ncoordinator\ncould read",
        "sent",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            *_cells(row),
            "all the data" if row.readable is None else str(row.readable),
            f"{row.bytes_sent / 1e6:.1f} MB" if row.bytes_sent else "–",
        )
    console.print(table)
    console.print(
        "FedDC(1, 10) hands models over after every round and aggregates every tenth. FedAvg(b) "
        "aggregates every b rounds.\nOne seed: differences of a few points are noise. See "
        "docs/when-it-helps.md for what to expect."
    )


def _cells(row: DemoRow) -> list[str]:
    return [
        row.method,
        percent(row.test_accuracy),
        str(row.hand_overs or "–"),
        str(row.aggregations or "–"),
    ]
