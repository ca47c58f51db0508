"""The closing secure sum end to end: figures of the final model, as totals over hospitals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.serverapp.strategy import FedAvg, FedAvgM, Strategy

from learning.local_data import load_partitions
from learning.trainer import Network, TaskSpec
from protocol.message_bytes import decode_signed_reply, decode_signed_request
from protocol.messages import Closed, EvaluateFinal, Masked, Request, Reveal, SignSurvivors
from strategies.session.storage.journal import DiskJournal
from tests.strategies.misconduct import Rule, is_deaf
from tests.strategies.test_resume import EXPERIMENT, Killed, KilledGrid
from tests.strategies.unruly_grid import Outcome, UnrulyGrid, prepare, run, tiny

# One leg, an aggregation; then the closing sum, which is numbered 2.
SETTINGS: dict[str, Any] = {
    "hospitals": 4,
    "rounds": 2,
    "daisy_period": 0,
    "aggregation_period": 2,
    "sealed": True,
}
TRIPS: dict[str, type[Request]] = {
    "masked": EvaluateFinal,
    "signed": SignSurvivors,
    "revealed": Reveal,
}
CLOSING = 2


def silent_in(trip: type[Request], *positions: int) -> Rule:
    kinds = list(TRIPS.values())
    later = tuple(kinds[kinds.index(trip) :])

    def rule(position: int, request: Request) -> Any:
        is_concerned = position in positions and isinstance(request, later)
        return is_deaf if is_concerned and request.leg == CLOSING else None  # type: ignore[union-attr]

    return rule


def expected(outcome: Outcome, *positions: int) -> tuple[list[int], list[int], float]:
    """Count by class, and add up losses, with a forward pass of its own."""
    settings = outcome.grid.settings
    algorithm = settings.algorithm
    partitions = load_partitions(settings.local, algorithm.hospitals, algorithm.seed)
    shape = partitions[0].train.features.shape[1:]
    classes = int(max(p.train.labels.max() for p in partitions)) + 1
    network = Network(settings.training, TaskSpec(shape, classes), seed=0)
    final = outcome.diary.aggregates[1]
    network.load(final.parameters, final.buffers)
    network.module.eval()
    examples, correct, loss = np.zeros(classes, int), np.zeros(classes, int), 0.0
    for position in positions or range(algorithm.hospitals):
        held_out = partitions[position].held_out
        for features, label in zip(held_out.features, held_out.labels, strict=True):
            with torch.no_grad():
                scores = network.module(torch.as_tensor(features)[None].to(network.dtype))[0]
            examples[label] += 1
            correct[label] += int(scores.argmax()) == label
            loss += float(-torch.log_softmax(scores.double(), 0)[label])
    return examples.tolist(), correct.tolist(), loss


@pytest.mark.parametrize("make", [FedAvg, FedAvgM])
def test_the_totals_are_those_of_the_final_model_over_all_hospitals(make: type[Strategy]) -> None:
    outcome = run(UnrulyGrid(tiny(**SETTINGS)), make(), averaging="secure")

    totals = outcome.diary.totals
    assert totals is not None
    examples, correct, loss = expected(outcome)
    assert (totals.hospitals, list(totals.examples)) == (4, examples)
    assert list(totals.correct) == correct
    assert totals.loss == pytest.approx(loss, rel=1e-4)
    assert totals.accuracy == sum(correct) / sum(examples)
    rates = [c / n for c, n in zip(correct, examples, strict=True) if n]
    assert totals.balanced_accuracy == pytest.approx(np.mean(rates))


def test_nobody_sees_the_figures_of_one_hospital() -> None:
    grid = UnrulyGrid(tiny(**SETTINGS))
    run(grid, averaging="secure")

    replies = [decode_signed_reply(data) for _, data in grid.answered]
    closing = [r for r in replies if isinstance(r, Masked) and r.leg == CLOSING]
    assert len(closing) == 4
    assert len({len(reply.payload) for reply in closing}) == 1
    closed = [reply for reply in replies if isinstance(reply, Closed)]
    assert {(reply.held_out_loss, reply.held_out_accuracy) for reply in closed} == {(None, None)}


@pytest.mark.parametrize("trip", list(TRIPS))
def test_one_drop_out_of_four_leaves_the_totals_of_the_survivors(trip: str) -> None:
    outcome = run(UnrulyGrid(tiny(**SETTINGS), silent_in(TRIPS[trip], 3)), averaging="secure")

    survivors = (0, 1, 2) if trip == "masked" else ()
    examples, correct, _ = expected(outcome, *survivors)
    totals = outcome.diary.totals
    assert totals is not None
    assert (list(totals.examples), list(totals.correct)) == (examples, correct)
    assert totals.hospitals == len(survivors or range(4))


@pytest.mark.parametrize("trip", list(TRIPS))
def test_two_drop_outs_of_four_leave_a_model_without_figures(trip: str) -> None:
    outcome = run(UnrulyGrid(tiny(**SETTINGS), silent_in(TRIPS[trip], 2, 3)), averaging="secure")

    assert outcome.result is not None
    assert outcome.diary.totals is None
    assert all(isinstance(end.reply, Closed) for end in outcome.diary.ends.values())


def test_hospitals_that_are_gone_at_the_end_leave_a_model_without_figures() -> None:
    grid = UnrulyGrid(tiny(**SETTINGS), away={2: {2, 3}})
    assert run(grid, averaging="secure").diary.totals is None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_while_it_closes_a_run_goes_on_to_the_same_bytes(
    tmp_path: Path, after: bool
) -> None:
    settings = tiny(**SETTINGS | {"hospitals": 3})
    options = {"averaging": "secure", "experiment": EXPERIMENT}
    whole = KilledGrid(settings)
    prepared = prepare(whole, journal=DiskJournal(tmp_path / "whole"), **options)
    expected = prepared[1]().diary.totals
    assert expected is not None
    kinds = [decode_signed_request(data).kind for _, data in whole.asked]
    first = 2 * kinds.index("evaluate-final")  # every message is pushed once and pulled once
    for at in range(first, whole.calls + 1, 5):
        folder = tmp_path / f"{at}"
        grid = KilledGrid(settings, at=at, after=after)
        with pytest.raises(Killed):
            prepare(grid, journal=DiskJournal(folder), **options)[1]()
        outcome = prepare(grid, journal=DiskJournal(folder), **options)[1]()

        assert outcome.diary.totals == expected
        # Whatever a hospital was asked twice, it was asked with the same bytes.
        sent: dict[tuple[int, str], set[bytes]] = {}
        for position, data in grid.asked:
            request = decode_signed_request(data)
            if getattr(request, "leg", CLOSING) == CLOSING and request.kind != "hello":
                sent.setdefault((position, request.kind), set()).add(data)
        assert {len(found) for found in sent.values()} == {1}
