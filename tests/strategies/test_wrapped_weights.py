"""Any aggregation: the weights that the strategy is given."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.messages import Announcement
from tests.conftest import Run
from tests.strategies.formulas import ALGORITHMS
from tests.strategies.recorded_aggregations import Aggregation, aggregations, vector
from tests.strategies.unruly_grid import NAMES


def examples(run: Run) -> list[int]:
    found = {p: r.examples for p, r in run.grid.replies if isinstance(r, Announcement)}
    return [found[position] for position in sorted(found)]


def visited(run: Run, a: Aggregation) -> list[set[int]]:
    """Follow every chain back from an aggregation over the recorded requests."""
    sender = {
        (r.leg, NAMES.index(r.recipient)): p for p, r in run.grid.legs() if r.recipient is not None
    }
    journeys = []
    for position in a.positions:
        places, at, leg = {position}, position, a.leg
        while (leg - 1, at) in sender:
            leg, at = leg - 1, sender[leg - 1, at]
            places.add(at)
        journeys.append(places)
    return journeys


@pytest.mark.parametrize("aggregator", ["fedavg", "fedadam"])
@pytest.mark.parametrize("weighting", ["equal", "examples", "chain-examples"])
def test_weights_are_equal_or_by_examples_or_by_examples_along_the_chain(
    run_open: Any, weighting: str, aggregator: str
) -> None:
    changes = {"split": "skewed", "skew_min_examples": 3, "weighting": weighting}
    run = run_open(aggregator=aggregator, **changes)
    sizes = examples(run)
    assert len(set(sizes)) >= 4
    formula = ALGORITHMS[aggregator][1]()
    for a in aggregations(run):
        weights = {
            "equal": [1] * 6,
            "examples": [sizes[p] for p in a.positions],
            "chain-examples": [sum(sizes[h] for h in places) for places in visited(run, a)],
        }[weighting]
        weighted = np.average(a.models, axis=0, weights=weights)

        class Once(Aggregation):  # the formulas take the mean: give them one model, the average
            models = weighted[None]  # type: ignore[assignment]

        once = Once(a.leg, a.count, [], [], [], a.before, a.after)
        expected = formula(vector(a.before), once)
        np.testing.assert_allclose(vector(a.after), expected, rtol=1e-8, atol=1e-11)


def test_a_weight_along_the_chain_counts_no_hospital_twice_and_starts_anew(run_open: Any) -> None:
    run = run_open(split="skewed", skew_min_examples=3, weighting="chain-examples", rounds=8)
    sizes = examples(run)
    lines = Path(run.settings.algorithm.run_dir, "metrics.jsonl").read_text("utf-8").splitlines()
    events = [event for event in map(json.loads, lines) if event["event"] == "hospital"]
    for a in aggregations(run):
        reported = {e["hospital"]: e["weight"] for e in events if e["leg"] == a.leg}
        journeys = visited(run, a)
        assert max(map(len, journeys)) <= 4  # three hand-overs since the last aggregation
        assert reported == {
            NAMES[p]: sum(sizes[h] for h in places)
            for p, places in zip(a.positions, journeys, strict=True)
        }
