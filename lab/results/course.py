"""The course of a training: its best round by validation data, and whether a lead is stable."""

from collections.abc import Sequence

from lab.sweep.record import Point

Curve = list[tuple[int, list[float]]]


def best_point(curve: Sequence[Point], *, balanced: bool) -> tuple[int, float] | None:
    """Return the round with the best accuracy on validation data, and its test accuracy in %.

    None where there are no validation data. Of equals the first: it needs the fewest rounds.
    """
    known = [
        (score, -point[0], _accuracy(point, balanced=balanced))
        for point in curve
        if (score := point[6] if balanced else point[5]) is not None
    ]
    if not known:
        return None
    _, round_, accuracy = max(known)
    return -round_, accuracy


def joint_curve(curves: Sequence[Sequence[Point]], *, balanced: bool) -> Curve:
    """Return the rounds that all seeds have, with the test accuracy of each seed in %."""
    if not curves:
        return []
    by_round = [
        {point[0]: _accuracy(point, balanced=balanced) for point in curve} for curve in curves
    ]
    rounds = sorted(set.intersection(*(set(each) for each in by_round)))
    return [(round_, [each[round_] for each in by_round]) for round_ in rounds]


def is_stable(ours: Curve, other: Curve) -> bool | None:
    """Return whether the mean difference keeps its last sign over the last third of the rounds.

    None where fewer than two common rounds are in it.
    """
    mine, theirs = dict(ours), dict(other)
    common = sorted(set(mine) & set(theirs))
    if not common:
        return None
    late = [round_ for round_ in common if round_ > 2 * common[-1] / 3]
    differences = [
        sum(mine[round_]) / len(mine[round_]) - sum(theirs[round_]) / len(theirs[round_])
        for round_ in late
    ]
    if len(differences) < 2:
        return None
    return all(difference * differences[-1] > 0 for difference in differences)


def _accuracy(point: Point, *, balanced: bool) -> float:
    return round(100 * (point[4] if balanced else point[3]), 3)
