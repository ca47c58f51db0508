"""Any aggregation, untouched: every strategy compared with its formula in NumPy.

Runs go through the real ServerApp and ClientApp, with hand-overs in between. What the hospitals
sent for aggregation is taken from the record, and each aggregate is computed from it a second time.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from scipy.optimize import minimize

from lab.flower.in_process import InProcessGrid
from protocol.descriptor import Descriptor
from protocol.messages import Carries
from server_app.config.aggregators import build_aggregator
from tests.strategies.formulas import ALGORITHMS
from tests.strategies.recorded_aggregations import (
    Aggregation,
    Vector,
    aggregations,
    assert_follows,
    vector,
)


@pytest.mark.parametrize("case", ALGORITHMS)
def test_every_aggregate_is_the_strategys_own_with_hand_overs_between(
    run_open: Any, case: str
) -> None:
    changes, formula = ALGORITHMS[case]
    run = run_open(aggregator=case.split(",")[0], sealed=case == "fedavg", **changes)
    found = aggregations(run)
    assert [a.leg for a in found] == ([1, 2, 3] if case == "qfedavg" else [4, 8, 12])
    assert all(len(a.states) == run.settings.algorithm.hospitals for a in found)
    assert_follows(found, formula())
    hand_overs = sum(r.carries is Carries.ENVELOPE for _, r in run.grid.legs())
    assert bool(hand_overs) == (case != "qfedavg")


def test_the_formulas_would_notice_another_aggregate(run_open: Any) -> None:
    found = aggregations(run_open(aggregator="fedavg"))
    for case in ("fedavgm", "fedadam", "median", "krum"):
        with pytest.raises(AssertionError):
            assert_follows(found, ALGORITHMS[case][1]())


class ReplayGrid(InProcessGrid):
    """Hospitals that answer Flower's own loop with the models recorded in another run."""

    def __init__(self, found: Sequence[Aggregation], order: Iterable[str]) -> None:
        super().__init__(self._replay, len(found[0].states), {})  # type: ignore[arg-type]
        self._found = found
        self._order = list(order)

    def _replay(self, message: Message, context: Context) -> Message:
        position = message.metadata.dst_node_id - 100
        a = self._found[int(message.content["config"]["server-round"]) - 1]  # type: ignore[index]
        metrics = MetricRecord({"num-examples": 1.0, "train_loss": a.losses[position]})
        if message.metadata.message_type == "evaluate":
            return Message(RecordDict({"metrics": metrics}), reply_to=message)
        sent = message.content.array_records["arrays"]
        for name, array in sent.items():
            np.testing.assert_allclose(
                array.numpy(), a.before.parameters[name], rtol=1e-9, atol=1e-12
            )
        arrays = ArrayRecord({n: Array(a.states[position].parameters[n]) for n in self._order})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@pytest.mark.parametrize("case", [case for case in ALGORITHMS if case != "fedprox"])
def test_without_daisy_chaining_flowers_own_loop_gives_the_same_model(
    run_open: Any, case: str
) -> None:
    changes = ALGORITHMS[case][0] | {"daisy_period": 0, "aggregation_period": 1, "rounds": 4}
    run = run_open(aggregator=case.split(",")[0], **changes)
    found = aggregations(run)
    first = found[0].before.parameters
    bare = build_aggregator(run.settings, route_seed=b"")
    grid = ReplayGrid(found, first)
    arrays = ArrayRecord({name: Array(array) for name, array in first.items()})
    result = bare.start(grid, arrays, num_rounds=4)
    assert set(result.arrays) == set(run.model)
    for name, array in result.arrays.items():
        # Flower asks in random order, so sums differ in their last digits.
        np.testing.assert_allclose(array.numpy(), run.model[name], rtol=1e-7, atol=1e-8)


def test_fedprox_tells_the_hospitals_mu_through_the_descriptor(run_open: Any) -> None:
    run = run_open(aggregator="fedprox", proximal_mu=0.3)
    agreed = [Descriptor.from_bytes(r.payload) for _, r in run.grid.requests if r.kind == "set-up"]
    assert {descriptor.training["proximal-mu"] for descriptor in agreed} == {0.3}


@pytest.fixture
def line(tmp_path: Path) -> dict[str, Any]:
    """Return the settings of a task with one feature: a margin with two parameters."""
    rng = np.random.default_rng(1)
    rows = [f"{x:.6f},{int(x + 0.3 * rng.normal() > 0)}" for x in rng.normal(size=120)]
    (tmp_path / "line.csv").write_text("\n".join(["x,label", *rows]) + "\n", encoding="utf-8")
    return {
        "dataset": "csv",
        "data_dir": str(tmp_path / "line.csv"),
        "model": "linear",
        "model_options": '{"outputs": 1}',
        "loss": "hinge",
        "hospitals": 4,
    }


def radon_of_four(points: Vector) -> Vector:
    """Return the Radon point of four points in the plane: where diagonals cross, or the one inside
    the triangle of the others."""
    for inside in range(4):
        a, b, c = (points[i] for i in range(4) if i != inside)
        u, v = np.linalg.solve(np.column_stack([b - a, c - a]), points[inside] - a)
        if u >= 0 and v >= 0 and u + v <= 1:
            return points[inside]
    for i, j in combinations(range(4), 2):
        k, m = (n for n in range(4) if n not in (i, j))
        matrix = np.column_stack([points[j] - points[i], points[k] - points[m]])
        s, t = np.linalg.solve(matrix, points[k] - points[i])
        if 0 <= s <= 1 and 0 <= t <= 1:
            return points[i] + s * (points[j] - points[i])
    raise AssertionError("four points in the plane have a Radon point")


def test_the_radon_point_aggregates_with_hand_overs_between(
    run_open: Any, line: dict[str, Any]
) -> None:
    found = aggregations(run_open(aggregator="radon", **line))
    assert found[0].models.shape == (4, 2)
    assert_follows(found, lambda x, a: radon_of_four(a.models))


def test_the_geometric_median_aggregates_with_hand_overs_between(
    run_open: Any, line: dict[str, Any]
) -> None:
    found = aggregations(run_open(aggregator="geometric-median", **line | {"hospitals": 5}))
    for a in found:

        def distances(point: Vector, models: Vector = a.models) -> float:
            return float(np.linalg.norm(models - point, axis=1).sum())

        options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 5000}
        starts = [a.models.mean(axis=0), *a.models]
        best = min(
            minimize(distances, x, method="Nelder-Mead", options=options).fun for x in starts
        )
        assert distances(vector(a.after)) <= best * (1 + 1e-7)
        assert not np.allclose(vector(a.after), a.models.mean(axis=0), rtol=1e-6)
