"""FedDC's gains over averaging with the same period, and with the same number of messages."""

from dataclasses import dataclass, replace

from lab.results.course import is_stable
from lab.results.row import Row
from lab.results.statistics import Spread, spread, verdict

_COMPARED = ("fedavg-b", "fedavg-1", "radon-b", "radon-1", "sgd")


@dataclass(frozen=True)
class Gain:
    """FedDC's gain over another method, in percentage points, paired over seeds."""

    variant: str
    method: str
    over: str
    over_label: str
    gain: Spread
    balanced_gain: Spread | None
    paper: float | None
    verdict: str
    by_balanced: bool = False
    """The verdict is on balanced accuracy: classes are uneven, and there is no accuracy of the
    paper to compare with."""
    stable: bool | None = None
    """Whether the difference keeps its sign over the last third of the rounds; None: unknown."""
    best: Spread | None = None
    """The difference between each method's best rounds by validation data."""


def gains(rows: list[Row], *, balanced: bool = False) -> list[Gain]:
    """Compare FedDC with FedAvg at the same period and at the same communication."""
    found = []
    for variant in dict.fromkeys(row.variant for row in rows):
        here = {row.method: row for row in rows if row.variant == variant}
        for ours in [row for row in here.values() if row.method.startswith("feddc")]:
            for other in _COMPARED:
                if other in here and (gain := _gain(ours, here[other])):
                    found.append(_judged(gain) if balanced else gain)
    return found


def _judged(gain: Gain) -> Gain:
    if gain.paper is not None or gain.balanced_gain is None:
        return gain
    return replace(gain, verdict=verdict(gain.balanced_gain), by_balanced=True)


def _gain(ours: Row, other: Row) -> Gain | None:
    if ours.headline is None or other.headline is None or ours.diverged or other.diverged:
        return None
    difference = _paired(ours.headline, other.headline, ours.overlap)
    paper = ours.paper - other.paper if ours.paper and other.paper else None
    return Gain(
        variant=ours.variant,
        method=ours.label,
        over=other.method,
        over_label=other.label,
        gain=difference,
        balanced_gain=_paired(ours.balanced, other.balanced, ours.overlap)
        if ours.balanced and other.balanced
        else None,
        paper=None if paper is None else round(paper, 2),
        verdict=verdict(difference),
        stable=is_stable(ours.curve, other.curve)
        if "clients" not in (ours.judged_by, other.judged_by)
        else None,
        best=_paired(ours.best, other.best, ours.overlap) if ours.best and other.best else None,
    )


def _paired(ours: Spread, other: Spread, overlap: float) -> Spread:
    pairs = zip(ours.values, other.values, strict=True)
    return spread([round(mine - theirs, 3) for mine, theirs in pairs], overlap=overlap)
