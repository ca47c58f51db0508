"""How accuracy grew, over seeds: what the plots are drawn from."""

from collections.abc import Mapping
from typing import Any

from lab.sweep import Plan, Record
from lab.sweep.plan import Cell


def curves(plan: Plan, records: Mapping[str, Record]) -> list[dict[str, Any]]:
    """Return for every row the mean curve of its reported trials, with the seeds' extremes."""
    found = []
    for cell in plan.cells:
        done = _reported(plan, cell, records)
        if done:
            found.append(
                {
                    "variant": cell.variant.label,
                    "method": cell.method.name,
                    "label": cell.method.label,
                    "test": _mean([record.curve for record in done], value=3),
                    "training": _mean([record.training for record in done], value=1),
                }
            )
    return found


def _reported(plan: Plan, cell: Cell, records: Mapping[str, Record]) -> list[Record]:
    found = []
    for seed in plan.seeds:
        rate = plan.rate_of(cell, seed, records)
        record = None if rate is None else records.get(plan.final(cell, seed, rate).key)
        if record is not None and record.status == "done":
            found.append(record)
    return found


def _mean(series: list[Any], *, value: int) -> list[list[float]]:
    """Average point by point: all seeds follow one schedule. What comes before the value is kept;
    after it come the smallest and the largest over seeds, and accuracies are in per cent.

    Of several points in one round the last is kept: one model on all data takes many steps in it.
    """
    shortest = min(len(points) for points in series)
    merged = {}
    for index in range(shortest):
        values = [100 * points[index][value] for points in series]
        mean = sum(values) / len(values)
        told = [round(each, 3) for each in (mean, min(values), max(values))]
        merged[series[0][index][0]] = [*series[0][index][:value], *told]
    return list(merged.values())
