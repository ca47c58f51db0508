"""accuracy.png: the accuracy of a run over its rounds."""

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure


def plot_accuracy(run_dir: Path) -> Path:
    """Draw the aggregates' test accuracy and the hospitals' training accuracy."""
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    events = [event for line in lines if (event := _read(line)) is not None]
    # By leg: a resumed run writes its last legs again.
    tests = list({e["leg"]: e for e in events if e["event"] == "evaluation"}.values())
    ended = {e["leg"]: e for e in events if e["event"] == "leg"}.values()
    legs = [event for event in ended if event["accuracy"] is not None]
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(
        [leg["last_round"] + 1 for leg in legs],
        [100 * leg["accuracy"] for leg in legs],
        color="tab:green",
        linewidth=1,
        label="training, mean over hospitals",
    )
    axes.plot(
        [test["round"] + 1 for test in tests],
        [100 * test["test_accuracy"] for test in tests],
        color="tab:orange",
        marker="o",
        markersize=3,
        label="test, each aggregate",
    )
    axes.set_xlabel("rounds (local updates)")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    path = run_dir / "accuracy.png"
    figure.savefig(path)
    return path


def _read(line: str) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = json.loads(line)
        return event
    except ValueError:  # incomplete: the run was killed while it wrote
        return None
