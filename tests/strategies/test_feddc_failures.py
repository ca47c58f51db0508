"""FedDC where a hospital fails: it is named and asked again, and the others go on."""

import logging
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from flwr.serverapp.strategy import FedAvg

from protocol.message_bytes import decode_signed_reply, decode_signed_request
from protocol.messages import (
    Announcement,
    Carries,
    Introduction,
    Refusal,
    RefusalCode,
    Request,
    Trained,
    TrainLeg,
)
from protocol.model_bytes import ModelState
from protocol.records import to_records
from tests.strategies.misconduct import (
    Conduct,
    always,
    answers,
    in_leg,
    is_deaf,
    keeps_silent,
    raises,
    sends,
)
from tests.strategies.unruly_grid import (
    NAMES,
    UnrulyGrid,
    assert_same,
    prepare,
    run,
    tiny,
)


@pytest.mark.parametrize(
    ("conduct", "reason"),
    [
        (raises, "no answer from its agent: Flower error 2"),
        (keeps_silent, "no answer in 30 s"),
        (is_deaf, "no answer in 30 s"),
        (sends(RecordDict()), "unusable reply: not a FedDC message"),
        (
            sends(to_records(b"\x00" * 100)),
            f"unusable reply: the agent of {NAMES[4]} has not signed it as its answer",
        ),
        (answers(Refusal(code=RefusalCode.INTERNAL_ERROR)), "refused: internal-error"),
        (answers(Introduction(hospital="me")), "unexpected reply type"),
        (answers(Announcement(examples=3)), "unexpected reply type"),
        (
            answers(
                Trained(
                    leg=1,
                    sealed=False,
                    loss=0.0,
                    accuracy=1.0,
                    held_out_loss=None,
                    held_out_accuracy=None,
                )
            ),
            "unexpected reply type",  # it is leg 2 that was asked for
        ),
    ],
    ids=[
        "raises",
        "silent",
        "deaf",
        "empty",
        "garbage",
        "refuses",
        "greets",
        "announces",
        "other leg",
    ],
)
def test_a_hospital_that_does_not_answer_is_parked_and_named_and_asked_again(
    conduct: Conduct, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("flwr").addHandler(caplog.handler)
    outcome = run(UnrulyGrid(tiny(sealed=True, rounds=8), in_leg(2, 4, conduct)))
    logging.getLogger("flwr").removeHandler(caplog.handler)
    reports, grid = outcome.diary.reports, outcome.grid
    assert dict(reports[2].missing) == {NAMES[4]: reason}
    assert reports[2].parked == (NAMES[4],)
    assert NAMES[4] not in reports[2].answered
    assert f"leg 2: missing {NAMES[4]} ({reason})" in caplog.text
    assert reports[3].parked == ()
    assert not reports[3].missing
    # Asked again, byte for byte; and the chain goes on where it was to go.
    again = [data for position, data in grid.asked if position == 4]
    twice = [data for data in set(again) if again.count(data) > 1]
    (repeated,) = [r for r in map(decode_signed_request, twice) if isinstance(r, TrainLeg)]
    assert repeated.leg == 2
    recipient = NAMES.index(repeated.recipient)
    assert recipient not in grid.requests(3)  # it has no model, and sits the leg out
    assert grid.requests(4)[recipient].payload == grid.replies(2)[4].payload
    assert list(outcome.diary.aggregates) == [4, 8]


def test_the_same_request_gives_the_same_model_so_lateness_changes_only_routes() -> None:
    grid = run(UnrulyGrid(tiny(sealed=True, rounds=4), in_leg(2, 4, keeps_silent))).grid
    models = [
        decode_signed_reply(answer).payload
        for (position, data), (_, answer) in zip(grid.asked, grid.answered, strict=True)
        if position == 4 and getattr(decode_signed_request(data), "leg", None) == 2
    ]
    assert len(models) == 2
    assert models[0] == models[1]


def test_a_hospital_that_never_answers_does_not_stop_the_others() -> None:
    outcome = run(UnrulyGrid(tiny(aggregation_period=12, sealed=True), always(1, is_deaf)))
    reports = outcome.diary.reports
    assert reports[1].missing == {NAMES[1]: "no answer in 30 s"}
    for leg in range(2, 13):  # from then on nobody waits for it that long
        assert reports[leg].missing[NAMES[1]].startswith("no answer in 5")
        assert list(reports[leg].missing) == [NAMES[1]]
    # One chain is parked, and at most one more was sent to it before that was known.
    assert 4 <= len(outcome.diary.models[12]) <= 5
    assert NAMES[1] not in outcome.diary.models[12]
    assert_same(outcome.diary.aggregates[12].parameters, outcome.mean(12))


def test_at_an_aggregation_the_missing_are_left_out_and_go_on_from_it() -> None:
    outcome = run(UnrulyGrid(tiny(), in_leg(4, 2, raises)))
    models = outcome.diary.models[4]
    assert set(models) == set(NAMES) - {NAMES[2]}
    assert_same(outcome.diary.aggregates[4].parameters, outcome.mean(4))
    assert outcome.diary.reports[4].parked == ()  # its chain is closed
    weights = outcome.diary.reports[4].weights
    assert weights == dict.fromkeys(models, 1.0)
    for request in outcome.grid.requests(5).values():  # 2 is back and has it too
        assert request.carries is Carries.AGGREGATE
        carried = ModelState.from_bytes(request.payload)
        assert_same(carried.parameters, outcome.diary.aggregates[4].parameters)
    assert len(outcome.grid.requests(5)) == 6


def test_who_owes_a_hand_over_is_named_at_the_aggregation_that_does_not_ask_for_it() -> None:
    outcome = run(UnrulyGrid(tiny(rounds=12, sealed=True), in_leg(11, 2, is_deaf)))
    # In this leg it was to keep its model, so that no other's waits for it.
    assert outcome.grid.requests(11)[2].recipient == NAMES[2]
    assert set(outcome.grid.requests(12)) == {0, 1, 3, 4, 5}
    assert outcome.diary.reports[12].missing == {NAMES[2]: "has not answered an earlier leg"}
    assert outcome.diary.reports[12].lost_chains == 1


def test_hospitals_that_disconnect_are_not_asked_and_come_back() -> None:
    away = {2: {0, 5}, 3: {0}}
    outcome = run(UnrulyGrid(tiny(), away=away))
    reports, grid = outcome.diary.reports, outcome.grid
    assert dict(reports[2].missing) == dict.fromkeys((NAMES[0], NAMES[5]), "not connected")
    assert set(grid.requests(2)) == {1, 2, 3, 4}
    for request in grid.requests(2).values():
        assert NAMES.index(request.recipient) in {1, 2, 3, 4}
    assert 0 not in grid.requests(3)
    back = grid.requests(4)[0]  # an aggregation: it sends the model it got in leg 1
    assert (back.first_round, back.local_rounds, back.recipient) == (3, 1, None)
    sent = {r.recipient: grid.replies(1)[p].payload for p, r in grid.requests(1).items()}
    assert back.payload == sent[NAMES[0]]
    assert len(outcome.diary.models[4]) == 6


def test_who_misses_the_delivery_has_missed_only_that() -> None:
    outcome = run(UnrulyGrid(tiny(), away={13: {3}}))
    assert outcome.diary.ends[NAMES[3]].problem == "not connected"
    assert list(outcome.diary.aggregates) == [4, 8, 12]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("changes", [{}, {"fraction": 0.7, "permutation": "coverage"}])
def test_a_run_survives_any_mixture_of_failures_within_the_quorum(
    seed: int, changes: dict[str, Any]
) -> None:
    rng = np.random.default_rng(seed)
    ways = [raises, keeps_silent, sends(RecordDict()), answers(Introduction(hospital="x"))]

    def rule(position: int, request: Request) -> Conduct | None:
        if isinstance(request, TrainLeg) and rng.random() < 0.2:
            return ways[rng.integers(len(ways))]
        return None

    away = {leg: {int(rng.integers(6))} for leg in range(1, 13) if rng.random() < 0.5}
    inner = FedAvg(min_train_nodes=1, min_available_nodes=1)
    outcome = run(UnrulyGrid(tiny(), rule, away), inner, quorum=0.01, **changes)
    assert list(outcome.diary.aggregates) == [4, 8, 12]
    for leg, aggregate in outcome.diary.aggregates.items():
        assert_same(aggregate.parameters, outcome.mean(leg))
    # Nobody was asked for two different models in one leg.
    for leg in range(1, 13):
        asked = [p for at, p, r in outcome.grid.conversation() if at == leg]
        assert len(asked) == len(set(asked))


def test_who_has_not_answered_after_a_minute_is_named_before_the_timeout() -> None:
    def rule(position: int, request: Request) -> Conduct | None:
        is_second = isinstance(request, TrainLeg) and request.leg == 2
        return keeps_silent if is_second and position == 4 else None

    _, start = prepare(UnrulyGrid(tiny(), rule))
    outcome = start(timeout=600)

    assert outcome.diary.unanswered_after[:2] == [(2, (NAMES[4],), 60), (2, (NAMES[4],), 360)]
    assert outcome.diary.reports[2].missing == {NAMES[4]: "no answer in 600 s"}
