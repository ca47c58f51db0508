"""FedDC where nothing goes wrong: what is told, delivered and kept secret."""

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

from protocol.messages import Close, Closed, TrainLeg
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg
from strategies.session.sealed_study import SealedStudy
from tests.strategies.unruly_grid import (
    NAMES,
    STUDY,
    UnrulyGrid,
    assert_same,
    make_feddc,
    prepare,
    run,
    tiny,
)


def test_result_and_observer_tell_the_whole_story() -> None:
    seen: list[int] = []

    def evaluate(leg: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(leg)
        return MetricRecord({"norm": float(sum(np.abs(a.numpy()).sum() for a in arrays.values()))})

    outcome, start = prepare(UnrulyGrid(tiny(sealed=True)))
    start(evaluate_fn=evaluate)
    result, diary = outcome.result, outcome.diary
    assert result is not None
    assert list(diary.hospitals) == sorted(NAMES)
    assert set(diary.hospitals.values()) == {7}
    assert [r.leg.ending for r in diary.reports.values()] == [
        Ending.AGGREGATION if leg % 4 == 0 else Ending.HAND_OVER for leg in range(1, 13)
    ]
    assert list(diary.aggregates) == seen == [4, 8, 12]
    assert list(result.train_metrics_clientapp) == [4, 8, 12]
    assert list(result.evaluate_metrics_serverapp) == [4, 8, 12]
    assert_same({k: a.numpy() for k, a in result.arrays.items()}, diary.aggregates[12].parameters)
    for leg in (4, 8, 12):
        assert list(diary.models[leg]) == sorted(NAMES)
        assert_same(diary.aggregates[leg].parameters, outcome.mean(leg))
    for report in diary.reports.values():
        assert report.answered == report.asked == tuple(sorted(NAMES))
        assert (dict(report.missing), report.parked) == ({}, ())
    assert set(diary.ends) == set(NAMES)
    assert all(isinstance(answer.reply, Closed) for answer in diary.ends.values())


def test_every_hospital_is_delivered_the_final_model() -> None:
    outcome = run(UnrulyGrid(tiny()))
    closes = [r for _, _, r in outcome.grid.conversation() if isinstance(r, Close)]
    assert len(closes) == 6
    for close in closes:
        delivered = ModelState.from_bytes(close.payload)
        assert_same(delivered.parameters, outcome.diary.aggregates[12].parameters)


def routes(**seeds: bytes) -> list[tuple[int, int, str | None]]:
    """Return who was asked in which leg, and for whom."""
    grid = UnrulyGrid(tiny(rounds=6, fraction=0.5, aggregation_period=3))
    run(grid, random_schedule=True, first_model_from_seed=False, **seeds)
    return [(leg, p, r.recipient) for leg, p, r in grid.conversation() if isinstance(r, TrainLeg)]


def test_routes_and_schedule_follow_from_the_route_seed_and_not_from_the_training_seed() -> None:
    one = routes(route_seed=b"one", training_seed=b"a")
    assert routes(route_seed=b"one", training_seed=b"b") == one
    assert routes(route_seed=b"two", training_seed=b"a") != one

    def legs(route: bytes, training: bytes) -> tuple[Leg, ...]:
        seeds = {"route_seed": route, "training_seed": training}
        feddc = make_feddc(FedAvg(), random_schedule=True, **STUDY, **seeds)
        return feddc.settings.schedule(100, route_seed=feddc.study.route_seed).legs

    assert legs(b"one", b"a") == legs(b"one", b"b") != legs(b"two", b"a")


def test_seeds_are_drawn_anew_unless_given() -> None:
    one, two = (SealedStudy(**STUDY) for _ in range(2))
    seeds = {one.route_seed, two.route_seed, one.training_seed, two.training_seed}
    assert len(seeds) == 4
    assert {len(seed) for seed in seeds} == {32}
