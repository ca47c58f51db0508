"""`feddc lab demo`: compare daisy-chaining with the alternatives on Flower's engine."""

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.baselines import train_alone, train_pooled
from lab.flower.simulate import SimulationFailed, simulate
from operation.config import Scalar
from server_app.config.run_config import Settings
from server_app.experiment.progress import shown

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
METHODS: dict[str, dict[str, Scalar]] = {
    f"FedDC(1, {PERIOD})": {"daisy-period": 1, "aggregation-period": PERIOD},
    f"FedAvg({PERIOD})": {"daisy-period": 0, "aggregation-period": PERIOD},
    "FedAvg(1)": {"daisy-period": 0, "aggregation-period": 1},
}


@dataclass(frozen=True)
class DemoRow:
    """One method; `readable` counts the hospital models that the coordinator could read."""

    method: str
    test_accuracy: float
    hand_overs: int
    aggregations: int
    readable: int | None
    bytes_sent: int
    seconds: float


def demo(*, json_output: bool) -> int:
    """Compare the methods; return the exit code."""
    screen = Console(stderr=True)
    base = Settings.from_run_config(TASK, source="demo")
    rows = []
    with tempfile.TemporaryDirectory(prefix="feddc-demo-") as folder:
        for number, (method, periods) in enumerate(METHODS.items(), start=1):
            screen.print(f"({number} of {len(METHODS)}) {method} on Flower's simulation engine")
            settings = Settings.from_run_config(TASK | periods, source="demo")
            try:
                rows.append(_federated(method, settings, Path(folder) / str(number), screen))
            except SimulationFailed as failure:
                screen.print(f"{method} failed: {failure.reason}", markup=False)
                return 1
    rows.insert(0, _alone(base))
    rows.append(_pooled(base))
    if json_output:
        Console().print_json(json.dumps([asdict(row) for row in rows]), indent=None)
    else:
        _show(rows)
    return 0


def _federated(method: str, settings: Settings, run_dir: Path, screen: Console) -> DemoRow:
    with shown(screen, bar=screen.is_terminal) as on_event:
        summary = simulate(settings, run_dir=run_dir, on_event=on_event)
    return DemoRow(
        method,
        summary["test_accuracy"],
        summary["hand_overs"],
        summary["aggregations"],
        summary["readable_models"],
        summary["bytes_up"] + summary["bytes_down"],
        summary["seconds"],
    )


def _alone(settings: Settings) -> DemoRow:
    started = time.monotonic()
    metrics = train_alone(settings)
    accuracy = sum(figure.accuracy for figure in metrics) / len(metrics)
    return DemoRow("each hospital alone", accuracy, 0, 0, 0, 0, time.monotonic() - started)


def _pooled(settings: Settings) -> DemoRow:
    started = time.monotonic()
    accuracy = train_pooled(settings).accuracy
    return DemoRow("all data pooled", accuracy, 0, 0, None, 0, time.monotonic() - started)


def _show(rows: list[DemoRow]) -> None:
    console = Console()
    table = Table(title="Digits: 15 hospitals with 6 images each, 100 rounds, one seed")
    table.add_column("method")
    for column in (
        "test\naccuracy",
        "hand-\novers",
        "aggre-\ngations",
        "models the\ncoordinator\ncould read",
        "sent",
        "seconds",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.method,
            f"{100 * row.test_accuracy:.1f} %",
            str(row.hand_overs or "–"),
            str(row.aggregations or "–"),
            "all the data" if row.readable is None else str(row.readable),
            f"{row.bytes_sent / 1e6:.1f} MB" if row.bytes_sent else "–",
            f"{row.seconds:.0f}",
        )
    console.print(table)
    console.print(
        "FedDC(1, 10) hands models over after every round and aggregates every tenth. FedAvg(b) "
        "aggregates every b rounds.\nOne seed: differences of a few points are noise. See "
        "docs/when-it-helps.md for what to expect."
    )
