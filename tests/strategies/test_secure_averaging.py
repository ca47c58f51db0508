"""Secure averaging end to end in process: real hospitals, the real coordinator, three trips."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg, FedAvgM, FedMedian, FedProx, Strategy

from protocol.message_bytes import decode_signed_reply, decode_signed_request
from protocol.messages import (
    Carries,
    Closed,
    Masked,
    Request,
    Reveal,
    SignSurvivors,
    Trained,
    TrainLeg,
)
from protocol.records import from_records
from strategies.session.quorum import QuorumNotReached
from strategies.session.storage.journal import DiskJournal
from tests.strategies.misconduct import Rule, is_deaf
from tests.strategies.test_resume import assert_resumes, undisturbed
from tests.strategies.unruly_grid import Outcome, UnrulyGrid, prepare, run, tiny

# Two aggregations with a hand-over before each. Four hospitals tolerate one drop-out.
SETTINGS: dict[str, Any] = {"hospitals": 4, "rounds": 4, "aggregation_period": 2, "sealed": True}
TRIPS: dict[str, type[Request]] = {"masked": TrainLeg, "signed": SignSurvivors, "revealed": Reveal}


def average(
    strategy: Strategy | None = None,
    rule: Rule = lambda position, request: None,
    *,
    averaging: str = "secure",
    **changes: Any,
) -> Outcome:
    grid = UnrulyGrid(tiny(**SETTINGS | changes), rule)
    return run(grid, strategy, averaging=averaging)


def deaf_in(trip: type[Request], leg: int, *positions: int) -> Rule:
    """These hospitals do not get the request of one trip of a leg, nor those after it."""
    kinds = list(TRIPS.values())
    later = tuple(kinds[kinds.index(trip) :])

    def rule(position: int, request: Request) -> Any:
        if position in positions and isinstance(request, later) and request.leg == leg:
            return is_deaf
        return None

    return rule


def assert_close(left: Outcome, right: Outcome, *legs: int) -> None:
    for leg in legs or right.diary.aggregates:
        expected = right.diary.aggregates[leg]
        for name, array in (expected.parameters | expected.buffers).items():
            found = left.diary.aggregates[leg]
            # 32 bits after the point, added up and divided; then trained on.
            np.testing.assert_allclose(
                (found.parameters | found.buffers)[name], array, rtol=1e-7, atol=1e-8
            )


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (FedAvg, {}),
        (FedAvg, {"daisy_period": 0, "aggregation_period": 1}),
        (FedAvg, {"weighting": "examples", "split": "skewed", "examples": 12}),
        (lambda: FedProx(proximal_mu=0.5), {}),
        (FedAvgM, {}),
        (FedAvg, {"init": "own"}),
    ],
    ids=["chains", "no chains", "weighted", "FedProx", "FedAvgM", "own init"],
)
def test_a_secure_average_is_the_plain_one(
    make: Callable[[], Strategy], changes: dict[str, Any]
) -> None:
    assert_close(average(make(), **changes), average(make(), averaging="plain", **changes))


def test_narrow_numbers_average_to_their_rounding() -> None:
    changes = {"wire_dtype": "float16", "precision": "float32"}
    secure = average(**changes).diary.aggregates[2]
    plain = average(averaging="plain", **changes).diary.aggregates[2]
    for name, array in plain.parameters.items():
        np.testing.assert_allclose(secure.parameters[name], array, rtol=2**-9, atol=2**-9)


@pytest.mark.parametrize("trip", list(TRIPS))
def test_one_drop_out_in_any_trip_leaves_the_average_of_the_survivors(trip: str) -> None:
    secure = average(rule=deaf_in(TRIPS[trip], 2, 3))

    # Who drops out after its vector has arrived is in the sum.
    without = deaf_in(TrainLeg, 2, 3) if trip == "masked" else lambda position, request: None
    assert_close(secure, average(rule=without, averaging="plain"), 2, 4)
    missing = secure.diary.reports[2].missing
    assert list(missing) == (["hospital-04"] if trip == "masked" else [])


@pytest.mark.parametrize("trip", list(TRIPS))
def test_two_drop_outs_of_four_end_the_run_with_an_error(trip: str) -> None:
    with pytest.raises(QuorumNotReached, match=r"leg 2: .* 3 are needed"):
        average(rule=deaf_in(TRIPS[trip], 2, 2, 3))


@pytest.mark.parametrize("trip", list(TRIPS))
def test_no_sum_is_of_fewer_than_the_minimum_cohort(trip: str) -> None:
    """Two thirds of four would be three."""
    grid = UnrulyGrid(tiny(**SETTINGS), deaf_in(TRIPS[trip], 2, 3))
    with pytest.raises(QuorumNotReached, match=r"leg 2: .* 4 are needed"):
        run(grid, averaging="secure", minimum_cohort=4)


def test_a_minimum_cohort_of_more_than_the_members_is_refused() -> None:
    with pytest.raises(ValueError, match="minimum-cohort = 5 needs as many members, got 4"):
        run(UnrulyGrid(tiny(**SETTINGS)), averaging="secure", minimum_cohort=5)


def test_the_coordinator_sees_neither_single_models_nor_single_figures() -> None:
    grid = UnrulyGrid(tiny(**SETTINGS))
    outcome = run(grid, averaging="secure")

    replies = [decode_signed_reply(data) for _, data in grid.answered]
    assert {type(reply) for reply in replies if getattr(reply, "leg", 1) in (2, 4)} >= {Masked}
    for reply in replies:
        if isinstance(reply, Trained):
            assert reply.sealed
            assert reply.loss is reply.accuracy is reply.held_out_accuracy is None
        if isinstance(reply, Closed):
            assert reply.held_out_accuracy is None
    assert not outcome.diary.models  # `received` is never called
    # Simulated hospitals all allow figures: their means are known.
    assert 0 < outcome.diary.reports[2].figures["loss"] < 10
    assert set(outcome.diary.reports[2].weights.values()) == {1.0}


def test_hospitals_get_sums_that_they_can_check_or_the_stepped_model() -> None:
    for strategy, carried in ((FedAvg(), Carries.SUM), (FedAvgM(), Carries.AGGREGATE)):
        grid = UnrulyGrid(tiny(**SETTINGS))
        run(grid, strategy, averaging="secure")
        assert {request.carries for request in grid.requests(3).values()} == {carried}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_in_any_trip_a_run_goes_on_to_the_same_bytes(tmp_path: Path, after: bool) -> None:
    settings = SETTINGS | {"rounds": 2, "hospitals": 3}
    options = {"averaging": "secure"}
    expected, calls = undisturbed(tmp_path, FedAvg, options, **settings)
    for at in range(10, calls + 1, 3):
        assert_resumes(tmp_path / f"{at}", FedAvg, expected, at, after, options, **settings)


def test_survivors_and_masked_sum_are_on_disk_before_the_second_trip(tmp_path: Path) -> None:
    seen: dict[tuple[str, int], list[str]] = {}

    class Watched(UnrulyGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            (message,) = messages
            request = decode_signed_request(from_records(message.content))
            if isinstance(request, SignSurvivors | Reveal):
                saved = DiskJournal(tmp_path).load() or {}
                # After the last leg, that of the closing sum.
                state = saved["secure_sum"] if request.leg == 2 else saved["closing"]["sum"]
                files = [path.name for path in (tmp_path / "models").iterdir()]
                seen.setdefault((request.kind, request.leg), files)
                assert len(state["survivors"]) == 4
                assert bool(state["signatures"]) == isinstance(request, Reveal)
            return super().push_messages([message])

    grid = Watched(tiny(**SETTINGS | {"rounds": 2}))
    prepare(grid, averaging="secure", journal=DiskJournal(tmp_path))[1]()

    ours = ("masked-sum", "seed-shares", "envelope", "current", "strategy", "aggregate", "final")
    for (_, leg), files in seen.items():
        assert {f"masked-sum-{leg}", f"seed-shares-{leg}"} <= set(files)
        # Nothing there is one hospital's model; envelopes are sealed.
        assert all(name.startswith(ours) for name in files)
    assert set(seen) == {(kind, leg) for kind in ("sign-survivors", "reveal") for leg in (2, 3)}


@pytest.mark.parametrize(
    ("strategy", "changes", "problem"),
    [
        (FedMedian(), {}, "works with FedAvg, .* not with FedMedian"),
        (FedAvg(), {"fraction": 0.5}, "needs fraction = 1"),
        (FedAvg(), {"weighting": "chain-examples"}, "choose equal or examples"),
        (FedAvg(), {"hospitals": 2}, "needs at least 3 members"),
    ],
)
def test_what_cannot_be_averaged_securely_is_refused_with_what_to_choose(
    strategy: Strategy, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=f"{problem}.*or choose averaging = plain"):
        average(strategy, **changes)
