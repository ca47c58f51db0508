"""A forest plot: every paired difference of a page, with the interval that its verdict rests on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.results.correction import corrected, key_of
from lab.results.origin import Results
from lab.results.row import spread_from_json
from lab.results.text import shown

_OTHERS = {"fedavg-b": "FedAvg(b)", "fedavg-1": "FedAvg(1)"}


def draw_forest(all_results: Sequence[Results], path: Path) -> Path:
    """Draw FedDC's differences from FedAvg(b) and FedAvg(1), a row for each comparison."""
    kept, tested = corrected(all_results)
    rows: dict[str, dict[str, Any]] = {}
    seen: set[Any] = set()
    for results in all_results:
        for gain in results["gains"]:
            if gain["over"] not in _OTHERS or key_of(gain) in seen:
                continue
            seen.add(key_of(gain))
            place = f", {gain['variant']}" if gain["variant"] else ""
            label = f"{results['experiment']} ({results['preset']}){place}, {gain['method']}"
            rows.setdefault(label, {})[gain["over"]] = gain
    height = 1.6 + 0.2 * len(rows)
    figure = Figure(figsize=(10, height), dpi=110, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True, sharex=True)
    for panel, (over, name) in zip(panels, _OTHERS.items(), strict=True):
        for number, gains in enumerate(reversed(rows.values())):
            if over in gains:
                _row(panel, number, gains[over], kept=key_of(gains[over]) in kept)
        panel.axvline(0, color="black", lw=0.8)
        panel.set_title(f"FedDC over {name}", fontsize=10)
        panel.set_xlabel("percentage points")
        panel.grid(alpha=0.3, axis="x")
    panels[0].set_yticks(range(len(rows)), list(reversed(rows)), fontsize=7)
    panels[0].set_ylim(-1, len(rows))
    panels[0].plot([], [], "o", color="tab:orange", label=f"holds among all {tested} (Holm, 5 %)")
    panels[0].plot([], [], "o", color="tab:orange", mfc="white", label="does not")
    panels[0].plot([], [], color="tab:blue", label="95 % interval")
    panels[0].plot([], [], color="0.6", ls=":", label="range of fewer than five seeds")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path)
    return path


def _row(panel: Axes, number: int, gain: dict[str, Any], *, kept: bool) -> None:
    difference = spread_from_json(shown(gain))
    if difference is None:
        return
    low, high = difference.bounds
    style = ("tab:blue", "-") if difference.interval else ("0.6", ":")
    panel.plot([low, high], [number, number], color=style[0], ls=style[1], lw=1.4)
    fill = "tab:orange" if kept else "white"
    panel.plot([difference.mean], [number], "o", color="tab:orange", mfc=fill, markersize=4)
