"""Learning curves over seeds, the data of the plots."""

from collections.abc import Mapping
from typing import Any

from lab.sweep import Record, SweepPlan


def curves(plan: SweepPlan, records: Mapping[str, Record]) -> list[dict[str, Any]]:
    """Return for every row the mean curve of its reported trials, with minimum and maximum."""
    found = []
    judged = 4 if plan.experiment.judged == "balanced-accuracy" else 3
    for cell in plan.cells:
        done = plan.reported(cell, records)
        if done:
            found.append(
                {
                    "variant": cell.variant.label,
                    "method": cell.method.name,
                    "label": cell.method.label,
                    "test": _mean([record.curve for record in done], value=judged),
                    "training": _mean([record.training for record in done], value=1),
                    "hospitals": _extremes([record.training for record in done]),
                }
            )
    return found


def _extremes(series: list[Any]) -> list[list[float]]:
    """Return rounds, and the lowest and highest training accuracy of a hospital in any seed."""
    shortest = min(len(points) for points in series)
    return [
        [
            series[0][index][0],
            round(100 * min(points[index][2] for points in series), 3),
            round(100 * max(points[index][3] for points in series), 3),
        ]
        for index in range(shortest)
    ]


def _mean(series: list[Any], *, value: int) -> list[list[float]]:
    """Average point by point, since all seeds have the same schedule; accuracies in per cent.

    Columns before the value are kept; mean, minimum and maximum over seeds follow. Of several
    points in one round the last is kept: training on pooled data takes many steps in a round.
    """
    shortest = min(len(points) for points in series)
    merged = {}
    for index in range(shortest):
        values = [100 * points[index][value] for points in series]
        mean = sum(values) / len(values)
        spread = [round(each, 3) for each in (mean, min(values), max(values))]
        merged[series[0][index][0]] = [*series[0][index][: min(value, 3)], *spread]
    return list(merged.values())
