"""Counters in a model tell its recipient nothing about the chain.

Before, Adam's `step` and BatchNorm's `num_batches_tracked` stayed behind in a chain that had waited
for an absent hospital: every later recipient could see that it had.
"""

from typing import Any

import numpy as np
import pytest

from client_app.hospital.counters import with_counters
from learning.trainer import Trainer
from protocol.model_bytes import Arrays, ModelState
from tests.strategies.unruly_grid import UnrulyGrid, run, tiny

ADAM: dict[str, Any] = {"optimizer": "adam", "learning_rate": 0.01, "aggregation_period": 6}


@pytest.mark.parametrize("optimizer_state", ["reset", "kept"])
@pytest.mark.parametrize(
    "away",
    [
        {2: {3}, 3: {3}},  # with a model: its chain waits for two legs, and has missed rounds
        {6: {3}, 7: {3}, 8: {3}},  # at an aggregation: it begins later than the others
    ],
)
def test_no_model_that_is_handed_over_tells_how_many_steps_it_was_trained(
    away: dict[int, set[int]], optimizer_state: str
) -> None:
    settings = tiny(rounds=12, optimizer_state=optimizer_state, **ADAM)
    outcome = run(UnrulyGrid(settings, away=away))

    assert sum(report.missed_rounds for report in outcome.diary.reports.values()) > 0
    for leg in (5, 7, 8, 9, 10, 11):
        for reply in outcome.grid.replies(leg).values():
            assert ModelState.from_bytes(reply.payload).optimizer["step"] == 0


def test_a_parked_chain_is_trained_with_the_steps_of_the_others() -> None:
    steps = []

    class Noted(Trainer):
        def train(self, first: int, rounds: int, optimizer: Arrays, anchor: Any) -> Any:
            steps.append((first, int(optimizer["step"])))
            return super().train(first, rounds, optimizer, anchor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("client_app.hospital.local_training.Trainer", Noted)
        run(UnrulyGrid(tiny(rounds=12, **ADAM, examples=6), away={2: {3}, 3: {3}}))
    assert {(first, made) for first, made in steps if first > 3} == {
        (first, first % 6) for first in range(4, 12)
    }


def test_counters_keep_their_shape_and_type_and_nothing_else_changes() -> None:
    model = ModelState(
        {"step": np.ones(2, np.float32)},  # a parameter of that name is none
        {"norm.num_batches_tracked": np.array(3), "norm.running_mean": np.ones(2, np.float32)},
        {"step": np.array(4), "m/step": np.ones(2, np.float32)},
    )
    counted = with_counters(model, batches=20, steps=7)
    expected = ModelState(
        model.parameters,
        {"norm.num_batches_tracked": np.array(20), "norm.running_mean": np.ones(2, np.float32)},
        {"step": np.array(7), "m/step": np.ones(2, np.float32)},
    )
    assert counted.to_bytes() == expected.to_bytes()
