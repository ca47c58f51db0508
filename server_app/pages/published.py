"""What hospitals publish of themselves, and which means leave the others' figures untold."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from operation.runs.curve import Point
from operation.runs.history import HospitalHistory, RunHistory
from operation.runs.pooling import gives_away, is_pooled

Hospitals = dict[str, HospitalHistory]


def published_losses(history: RunHistory) -> Hospitals:
    """Return the hospitals whose training loss may be shown."""
    return _published(history, lambda one: one.loss)


def published_accuracies(history: RunHistory) -> Hospitals:
    """Return the hospitals whose accuracy on held-out examples may be shown."""
    total = history.held_out_total or {}
    pooled_over = total.get("hospitals", 0)
    if history.held_out.points:
        pooled_over = max(pooled_over, history.held_out.points[-1][3])
    return _published(history, lambda one: one.held_out_accuracy, pooled_over)


def _published(
    history: RunHistory,
    figure: Callable[[HospitalHistory], float | None],
    pooled_over: float = 0,
) -> Hospitals:
    """Return the hospitals that publish a figure, if the pooled one does not give others away.

    With one or two others, theirs would follow from the pooled figure and the published ones.
    """
    known = {name: one for name, one in history.hospitals.items() if figure(one) is not None}
    published = {name: one for name, one in known.items() if one.publishes}
    return {} if gives_away(max(len(known), pooled_over) - len(published)) else published


def published_rows(
    history: RunHistory, losses: Mapping[str, object], accuracies: Mapping[str, object]
) -> list[dict[str, Any]]:
    """Return a row for each hospital that publishes: figures of its policy's `metrics` only."""
    rows = [
        {
            "name": name,
            "examples": one.examples,
            "loss": one.loss if name in losses else None,
            "accuracy": one.held_out_accuracy if name in accuracies else None,
        }
        for name, one in sorted(history.hospitals.items())
        if one.publishes
    ]
    return [row for row in rows if any(row[key] is not None for key in row.keys() - {"name"})]


def pooled_only(point: Point, *, beside_losses: bool) -> Point:
    """Return a point of `RunHistory.training` without means that tell one hospital's figure.

    `beside_losses`: the losses of hospitals that publish are shown, too.
    """
    x, loss, accuracy, in_loss, in_accuracy, others = point
    is_told = not is_pooled(in_loss) or (beside_losses and gives_away(others))
    return x, math.nan if is_told else loss, accuracy if is_pooled(in_accuracy) else math.nan
