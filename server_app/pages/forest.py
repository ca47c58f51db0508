"""The forest plot: a row for each hospital with its interval, and the pooled figure."""

from collections.abc import Mapping
from math import sqrt
from typing import Any

from operation.runs.history import HospitalHistory

_Z = 1.959964  # 95 %


def forest(hospitals: Mapping[str, HospitalHistory], pooled: float | None) -> dict[str, Any] | None:
    """Return the final model's held-out accuracy by hospital; None if nobody discloses one."""
    rows = []
    for name, one in sorted(hospitals.items()):
        if one.held_out_accuracy is None:
            continue
        row: dict[str, Any] = {"name": name, "value": round(one.held_out_accuracy, 4)}
        if one.held_out_examples:
            row["examples"] = one.held_out_examples
            row["interval"] = wilson(one.held_out_accuracy, one.held_out_examples)
        rows.append(row)
    if not rows:
        return None
    return {"rows": rows, "pooled": None if pooled is None else round(pooled, 4)}


def wilson(fraction: float, count: int) -> list[float]:
    """Return the 95 % score interval of a fraction of `count` examples (Wilson 1927)."""
    centre = fraction + _Z**2 / (2 * count)
    spread = _Z * sqrt(fraction * (1 - fraction) / count + _Z**2 / (4 * count**2))
    scale = 1 + _Z**2 / count
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return [round(max(0.0, low), 4), round(min(1.0, high), 4)]
