"""Correct verdicts for the number of comparisons on a page (Holm, 1979)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lab.results.origin import Results
from lab.results.text import shown

_LEVEL = 0.05
_FEWEST = 3
Key = tuple[str, tuple[float, ...]]


def p_value(values: Sequence[float], *, overlap: float = 0.0) -> float | None:
    """Return the two-sided p-value of the mean being 0 (t-test); None with fewer than three seeds.

    `overlap` corrects for seeds that draw their test sets from the same examples, as in `spread`.
    """
    count = len(values)
    if count < _FEWEST:
        return None
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    if variance == 0:
        return 0.0 if mean else 1.0
    from scipy.stats import t  # slow to import

    statistic = abs(mean) / math.sqrt(variance * (1 / count + overlap))
    return float(2 * t.sf(statistic, count - 1))


def holm(p_values: Mapping[Key, float]) -> set[Key]:
    """Return the comparisons that remain significant at 5 % when all of them are counted."""
    kept: set[Key] = set()
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    for place, (key, value) in enumerate(ordered):
        if value > _LEVEL / (len(ordered) - place):
            break
        kept.add(key)
    return kept


def corrected(all_results: Sequence[Results]) -> tuple[set[Key], int]:
    """Return the comparisons of a page that remain significant, and how many were tested.

    A comparison that several experiments share is tested once.
    """
    found: dict[Key, float] = {}
    for results in all_results:
        overlaps = {row["variant"]: row["overlap"] for row in results["rows"]}
        for gain in results["gains"]:
            value = p_value(shown(gain)["values"], overlap=overlaps[gain["variant"]])
            if value is not None:
                found[key_of(gain)] = value
    return holm(found), len(found)


def key_of(gain: Mapping[str, Any]) -> Key:
    """Identify a comparison by what it is compared with and its differences."""
    return gain["over"], tuple(shown(dict(gain))["values"])
