"""Any aggregation, untouched: every strategy compared with its formula in NumPy.

Runs go through the real ServerApp and ClientApp, with hand-overs in between. What the hospitals
sent for aggregation is taken from the record, and each aggregate is computed from it a second time.
"""

import gc
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedTrimmedAvg,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)
from scipy.optimize import minimize

from lab.inprocess import InProcessGrid
from protocol.descriptor import Descriptor
from protocol.messages import (
    Announcement,
    Carries,
    Close,
    Hello,
    SetUp,
    Trained,
    decode_signed_request,
)
from protocol.model_bytes import ModelState
from server_app.aggregators import build_aggregator
from strategies.radon import RadonPoint
from strategies.wrapped import CohortView, Contribution, Wrapped
from tests.conftest import Run
from tests.strategies.unruly_grid import NAMES, UnrulyGrid, prepare, tiny
from tests.strategies.unruly_grid import run as run_feddc

Vector = np.ndarray
Step = Callable[[Vector, "Aggregation"], Vector]


@dataclass
class Aggregation:
    """One aggregation as it was seen on the wire, every model as one vector in roster order."""

    leg: int
    count: int
    positions: list[int]
    states: list[ModelState]
    losses: list[float]
    before: ModelState
    after: ModelState

    @property
    def models(self) -> Vector:
        return np.stack([vector(state) for state in self.states])


def vector(state: ModelState) -> Vector:
    return np.concatenate([state.parameters[name].ravel() for name in sorted(state.parameters)])


def aggregations(run: Run) -> list[Aggregation]:
    legs = run.grid.legs()
    replies = {(p, r.leg): r for p, r in run.grid.replies if isinstance(r, Trained)}
    carried = {r.leg: r.payload for _, r in legs if r.carries is Carries.AGGREGATE}
    closing = next(r.payload for _, r in run.grid.requests if isinstance(r, Close))
    ended = sorted({r.leg for _, r in legs if r.recipient is None})
    before = carried.get(1, b"")
    found = []
    for count, leg in enumerate(ended, start=1):
        asked = sorted(p for p, r in legs if r.leg == leg)
        sent = [replies[position, leg] for position in asked]
        after = carried.get(leg + 1, closing) if leg < ended[-1] else closing
        found.append(
            Aggregation(
                leg=leg,
                count=count,
                positions=asked,
                states=[ModelState.from_bytes(reply.payload) for reply in sent],
                losses=[reply.loss for reply in sent],
                before=ModelState.from_bytes(before) if before else ModelState({}),
                after=ModelState.from_bytes(after),
            )
        )
        before = after
    return found


@pytest.fixture
def run_open(run_tiny: Any) -> Any:
    """Run without envelopes: they take time, and no aggregate depends on them."""
    return lambda **changes: run_tiny(**{"sealing": False} | changes)


@pytest.fixture(autouse=True)
def _little_garbage() -> Iterator[None]:
    """Flower's Bulyan and QFedAvg collect garbage after every array: leave little to search."""
    gc.freeze()
    yield
    gc.unfreeze()


# --- the aggregations, as their papers write them -------------------------------------------------


def mean(x: Vector, a: Aggregation) -> Vector:
    return a.models.mean(axis=0)


def momentum(rate: float, beta: float) -> Step:
    velocity: list[Vector] = []

    def step(x: Vector, a: Aggregation) -> Vector:
        pull = x - a.models.mean(axis=0)
        velocity.append(pull + (beta * velocity[-1] if velocity else 0.0))
        return x - rate * velocity[-1]

    return step


def adaptive(kind: str, eta: float = 0.1, tau: float = 1e-3) -> Step:
    """Reddi et al., Algorithm 2, with Flower's bias correction for Adam; t counts aggregations."""
    b1, b2 = (0.0, 0.0) if kind == "adagrad" else (0.9, 0.99)
    m: Any = 0.0
    v: Any = 0.0
    t = 0

    def step(x: Vector, a: Aggregation) -> Vector:
        nonlocal m, v, t
        t += 1
        delta = a.models.mean(axis=0) - x
        m = b1 * m + (1 - b1) * delta
        if kind == "adam":
            v = b2 * v + (1 - b2) * delta**2
            rate = eta * np.sqrt(1 - b2 ** (t + 1)) / (1 - b1 ** (t + 1))
        elif kind == "yogi":
            v = v - (1 - b2) * delta**2 * np.sign(v - delta**2)
            rate = eta
        else:
            v = v + delta**2
            rate = eta
        return x + rate * m / (np.sqrt(v) + tau)

    return step


def median(x: Vector, a: Aggregation) -> Vector:
    ordered = np.sort(a.models, axis=0)
    n = len(ordered)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


def trimmed(x: Vector, a: Aggregation) -> Vector:
    return np.sort(a.models, axis=0)[1:-1].mean(axis=0)  # a fifth of six is one at each end


def krum_order(models: Vector, malicious: int) -> list[int]:
    """Order models by the sum of squared distances to their n − f − 2 nearest."""
    scores = []
    for i in range(len(models)):
        distances = sorted(
            float(((models[i] - models[j]) ** 2).sum()) for j in range(len(models)) if j != i
        )
        scores.append(sum(distances[: len(models) - malicious - 2]))
    return sorted(range(len(models)), key=lambda i: scores[i])


def krum(x: Vector, a: Aggregation) -> Vector:
    return a.models[krum_order(a.models, 1)[0]]


def multi_krum(x: Vector, a: Aggregation) -> Vector:
    return a.models[krum_order(a.models, 1)[:5]].mean(axis=0)


def bulyan(x: Vector, a: Aggregation) -> Vector:
    chosen = a.models[krum_order(a.models, 1)[: len(a.models) - 2]]
    result = np.empty(chosen.shape[1])
    for c, column in enumerate(chosen.T):
        middle = np.median(column)
        result[c] = np.mean(
            sorted(column, key=lambda value: abs(value - middle))[: len(column) - 2]
        )
    return result


def q_fair(x: Vector, a: Aggregation, q: float = 0.1, rate: float = 0.1) -> Vector:
    """Li et al., q-FedAvg: Δ_k = F_k^q L(x − x_k), h_k = q F_k^(q−1) ‖L(x − x_k)‖² + L F_k^q."""
    lipschitz = 1 / rate
    steps, norms = np.zeros_like(x), 0.0
    for model, loss in zip(a.models, a.losses, strict=True):
        gradient = lipschitz * (x - model)
        steps += loss**q * gradient
        norms += q * loss ** (q - 1) * (gradient**2).sum() + lipschitz * loss**q
    return x - steps / norms


ALGORITHMS: dict[str, tuple[dict[str, Any], Callable[[], Step]]] = {
    "fedavg": ({}, lambda: mean),
    "fedprox": ({"proximal_mu": 0.3}, lambda: mean),
    "fedavgm": ({}, lambda: momentum(1.0, 0.9)),
    "fedavgm, slower": (
        {"server_learning_rate": 0.5, "server_momentum": 0.7},
        lambda: momentum(0.5, 0.7),
    ),
    "fedadam": ({}, lambda: adaptive("adam")),
    "fedadam, slower": ({"server_learning_rate": 0.01}, lambda: adaptive("adam", eta=0.01)),
    "fedyogi": ({}, lambda: adaptive("yogi")),
    "fedadagrad": ({}, lambda: adaptive("adagrad")),
    "median": ({}, lambda: median),
    "trimmed-mean": ({}, lambda: trimmed),
    "krum": ({"malicious": 1}, lambda: krum),
    "multi-krum": ({"malicious": 1}, lambda: multi_krum),
    "bulyan": ({"malicious": 1, "hospitals": 8}, lambda: bulyan),
    "qfedavg": ({"daisy_period": 0}, lambda: q_fair),
}


def assert_follows(found: Sequence[Aggregation], step: Step) -> None:
    for a in found:
        expected = step(vector(a.before), a)
        np.testing.assert_allclose(vector(a.after), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("case", ALGORITHMS)
def test_every_aggregate_is_the_strategys_own_with_hand_overs_between(
    run_open: Any, case: str
) -> None:
    changes, formula = ALGORITHMS[case]
    run = run_open(aggregator=case.split(",")[0], sealing=case == "fedavg", **changes)
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


# --- few parameters: Radon point and geometric median ---------------------------------------------


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


# --- weights --------------------------------------------------------------------------------------


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
    changes = {"split": "skewed", "smallest": 3, "weighting": weighting}
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
    run = run_open(split="skewed", smallest=3, weighting="chain-examples", rounds=8)
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


# --- independent inits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregator", "step"),
    [("fedadam", lambda: adaptive("adam")), ("fedavgm", lambda: momentum(1.0, 0.9))],
)
def test_with_own_inits_the_first_aggregate_is_the_mean_and_steps_begin_there(
    run_open: Any, aggregator: str, step: Callable[[], Step]
) -> None:
    first, *rest = aggregations(run_open(aggregator=aggregator, init="own"))
    np.testing.assert_allclose(vector(first.after), first.models.mean(axis=0), rtol=1e-12)
    assert len(rest) == 2
    assert_follows(rest, step())  # with t = 1, no momentum yet


def test_with_own_inits_the_models_differ_from_the_start(run_open: Any) -> None:
    run = run_open(init="own", rounds=1, learning_rate=1e-9)
    (a,) = aggregations(run)
    assert {r.carries for _, r in run.grid.legs()} == {Carries.NOTHING}
    distances = [np.linalg.norm(x - y) for x, y in combinations(a.models, 2)]
    assert min(distances) > 0.5


@pytest.fixture
def flower_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    # A record may reach the handler twice, by way of the root logger.
    found = {(r.created, r.message) for r in log.records if "first aggregate's norm" in r.message}
    return [message for _, message in sorted(found)]


@pytest.mark.parametrize(("init", "expected"), [("own", 1), ("shared", 0)])
def test_a_collapse_is_warned_of_with_own_inits_and_not_with_a_shared_one(
    run_open: Any, flower_log: pytest.LogCaptureFixture, init: str, expected: int
) -> None:
    run_open(init=init, rounds=4)
    assert len(warnings(flower_log)) == expected
    assert all("Use init = shared" in message for message in warnings(flower_log))


def test_a_collapse_is_warned_of_only_once(flower_log: pytest.LogCaptureFixture) -> None:
    opposed = [contribution(1, 0), contribution(-1, 1)]
    wrapped = Wrapped(FedAvg(), opposed[0].model, own_init=False)
    for _ in range(3):
        wrapped.configure([100, 101], ConfigRecord(), UnrulyGrid(tiny()))
        wrapped.aggregate(opposed)
    assert len(warnings(flower_log)) == 1


# --- buffers --------------------------------------------------------------------------------------

IMAGES: dict[str, Any] = {
    "dataset": "digits",
    "model": "mri-cnn",
    "model_options": '{"filters": [2, 3]}',
    "hospitals": 4,
    "rounds": 6,
    "aggregation_period": 3,
    "batch_size": 4,
}


@pytest.mark.parametrize("aggregator", ["fedavg", "fedadam", "median"])
def test_buffers_are_averaged_and_never_the_strategys(run_open: Any, aggregator: str) -> None:
    for a in aggregations(run_open(aggregator=aggregator, **IMAGES)):
        assert {name.rpartition(".")[2] for name in a.after.buffers} == {
            "running_mean",
            "running_var",
            "num_batches_tracked",
        }
        for name, array in a.after.buffers.items():
            sent = [state.buffers[name] for state in a.states]
            np.testing.assert_allclose(array, np.mean(sent, axis=0), rtol=1e-12)
            if name.endswith("running_var"):
                assert (array > 0).all()
            if name.endswith("num_batches_tracked"):
                assert (array.dtype, array.shape) == (np.int64, ())
                assert array == 3 * a.count  # rounds trained so far


def test_the_strategy_sees_trainable_parameters_only() -> None:
    adam = FedAdam()
    outcome = run_feddc(UnrulyGrid(tiny(**IMAGES)), adam)
    assert adam.v_t is not None
    assert set(adam.v_t) == set(outcome.first.parameters)
    assert not set(adam.v_t) & set(outcome.first.buffers)


def contribution(value: float, counter: int, weight: float = 1.0) -> Contribution:
    parameters = {"w": np.full(2, value, np.float32)}
    buffers = {"steps": np.array(counter), "var": np.array([value], np.float32)}
    return Contribution(100 + counter, ModelState(parameters, buffers), weight, 0.0, 1.0)


def test_counters_that_differ_become_the_nearest_whole_number_of_their_mean() -> None:
    contributions = [contribution(1, 1), contribution(2, 5), contribution(6, 8, weight=2.0)]
    wrapped = Wrapped(FedAvg(), contributions[0].model, own_init=False)
    grid = UnrulyGrid(tiny())
    wrapped.configure([c.node for c in contributions], ConfigRecord(), grid)
    aggregate, _ = wrapped.aggregate(contributions)
    assert aggregate.buffers["steps"] == 6  # (1 + 5 + 2·8) / 4 = 5.5
    assert aggregate.buffers["steps"].dtype == np.int64
    assert aggregate.buffers["var"] == pytest.approx(3.75)  # (1 + 2 + 2·6) / 4
    assert aggregate.parameters["w"].tolist() == [3.75, 3.75]
    assert aggregate.parameters["w"].dtype == np.float32


def test_a_scalar_parameter_stays_one() -> None:
    models = [ModelState({"scale": np.array(value)}) for value in (1.0, 2.0)]
    wrapped = Wrapped(FedAvg(), models[0], own_init=False)
    wrapped.configure([100, 101], ConfigRecord(), UnrulyGrid(tiny()))
    pairs = zip((100, 101), models, strict=True)
    aggregate, _ = wrapped.aggregate([Contribution(n, m, 1.0, 0.0, 1.0) for n, m in pairs])
    assert isinstance(aggregate.parameters["scale"], np.ndarray)
    assert (aggregate.parameters["scale"].shape, aggregate.parameters["scale"]) == ((), 1.5)


def test_an_aggregate_keeps_the_models_number_type() -> None:
    def widen(arrays: ArrayRecord) -> ArrayRecord:
        return ArrayRecord({n: Array(a.numpy().astype(np.float64)) for n, a in arrays.items()})

    contributions = [contribution(1, 0), contribution(2, 1)]
    wrapped = Wrapped(Returning(widen), contributions[0].model, own_init=False)
    wrapped.configure([100, 101], ConfigRecord(), UnrulyGrid(tiny()))
    aggregate, _ = wrapped.aggregate(contributions)
    assert aggregate.parameters["w"].dtype == np.float32


def test_a_strategy_may_write_into_its_config_without_others_noticing() -> None:
    class Halving(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            config["rate"] = 0.5 * float(config["rate"])  # type: ignore[arg-type]
            return super().configure_train(server_round, arrays, config, grid)

    given = ConfigRecord({"rate": 0.4})
    wrapped = Wrapped(Halving(), contribution(1, 0).model, own_init=False)
    for _ in range(3):  # each time from what was given
        sent = wrapped.configure([100, 101], given, UnrulyGrid(tiny()))
        assert dict(sent) == {"rate": 0.2}
    assert dict(given) == {"rate": 0.4}


# --- strategies of a user's own -------------------------------------------------------------------


class Halfway(FedAvg):
    """Goes half of the way from the last aggregate to the mean."""

    def __init__(self) -> None:
        super().__init__(weighted_by_key="importance", arrayrecord_key="weights")
        self.rounds: list[int] = []
        self.seen: list[list[tuple[int, float]]] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.last = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        self.rounds.append(server_round)
        self.seen.append(
            [
                (r.metadata.src_node_id, r.content.metric_records["metrics"]["importance"])  # type: ignore[misc]
                for r in replies
            ]
        )
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        halves = {n: Array((a.numpy() + self.last[n]) / 2) for n, a in arrays.items()}
        return ArrayRecord(halves), metrics


def assert_aggregates(outcome: Any, expected: Callable[[Vector, Vector], Vector]) -> None:
    before = vector(outcome.first)
    for leg, aggregate in outcome.diary.aggregates.items():
        models = np.stack([vector(model) for model in outcome.diary.models[leg].values()])
        before = expected(before, models)
        np.testing.assert_allclose(vector(aggregate), before, rtol=1e-9, atol=1e-12)


def test_a_users_subclass_of_fedavg_aggregates() -> None:
    strategy = Halfway()
    outcome = run_feddc(UnrulyGrid(tiny()), strategy)
    assert_aggregates(outcome, lambda x, models: (x + models.mean(axis=0)) / 2)
    assert strategy.rounds == [1, 2, 3]  # one server round for each aggregation
    assert strategy.seen == [[(node, 1.0) for node in range(1, 7)]] * 3  # in roster order


class Largest(Strategy):
    """Takes the model with the largest norm; has none of FedAvg's attributes."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        content = RecordDict({"model": arrays, "settings": config})
        # Any order, as long as all of the leg's hospitals are in it.
        return (Message(content, node, "train") for node in reversed(list(grid.get_node_ids())))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        records = [next(iter(reply.content.array_records.values())) for reply in replies]
        return max(records, key=lambda r: sum((a.numpy() ** 2).sum() for a in r.values())), None

    def configure_evaluate(self, *_: Any) -> Iterable[Message]:
        return []

    def aggregate_evaluate(self, *_: Any) -> MetricRecord | None:
        return None

    def summary(self) -> None:
        pass


def test_a_strategy_that_is_no_fedavg_aggregates() -> None:
    outcome = run_feddc(UnrulyGrid(tiny()), Largest())
    assert_aggregates(outcome, lambda x, models: models[np.argmax(np.linalg.norm(models, axis=1))])


def test_flowers_privacy_wrapper_clips_against_the_last_aggregate() -> None:
    private = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(weighted_by_key="n"), noise_multiplier=0.0, clipping_norm=0.05, num_sampled_clients=6
    )
    outcome = run_feddc(UnrulyGrid(tiny()), private)

    def clipped(x: Vector, models: Vector) -> Vector:
        updates = models - x
        norms = np.linalg.norm(updates, axis=1, keepdims=True)
        assert (norms > 0.05).all()
        return x + (updates * 0.05 / norms).mean(axis=0)

    assert_aggregates(outcome, clipped)


def test_a_step_inside_flowers_privacy_wrapper_begins_at_the_mean_of_own_inits() -> None:
    private = DifferentialPrivacyClientSideFixedClipping(FedAvgM(server_momentum=0.9), 0.0, 1.0, 6)
    grid = UnrulyGrid(tiny(init="own"))
    # Which setting tells hospitals how to clip is theirs to know, and here they do not.
    with pytest.raises(Exception, match="did not agree"):
        run_feddc(grid, private)
    wrapped = Wrapped(private, ModelState({"w": np.zeros(2)}), own_init=True)
    contributions = [contribution(1, 0), contribution(2, 1)]
    wrapped.configure([100, 101], ConfigRecord(), grid)
    aggregate, _ = wrapped.aggregate(contributions)
    assert aggregate.parameters["w"].tolist() == [1.5, 1.5]


def test_the_strategy_is_shown_the_legs_cohort_and_can_send_nothing() -> None:
    shown: list[list[int]] = []

    class Curious(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            shown.append(sorted(grid.get_node_ids()))
            return super().configure_train(server_round, arrays, config, grid)

    grid = UnrulyGrid(tiny(rounds=4), away={2: {0, 1}})
    run_feddc(grid, Curious())
    everyone = [1, 2, 3, 4, 5, 6]  # by their place in the roster
    assert shown == [everyone, everyone, [3, 4, 5, 6], everyone, everyone]

    view = CohortView(grid, [100])
    for attempt in (
        lambda: view.push_messages([]),
        lambda: view.pull_messages([]),
        lambda: view.send_and_receive([]),
        lambda: view.set_run(grid.run),
    ):
        with pytest.raises(RuntimeError, match="sending is FedDC's part"):
            attempt()


# --- strategies that can't be wrapped, or do not deliver ------------------------------------------

PRIVATE = DifferentialPrivacyServerSideFixedClipping


@pytest.mark.parametrize(
    ("strategy", "changes", "message"),
    [
        (FedAvg(fraction_train=0.5), {}, r"fraction_train=0.5: subsampling is FedDC's"),
        (FedAvg(min_available_nodes=7), {}, r"min_available_nodes=7, .* 6 .* wait for ever"),
        (FedAdam(min_train_nodes=4), {"fraction": 0.5}, r"min_train_nodes=4, .* 3 .* wait"),
        (PRIVATE(FedAvg(min_available_nodes=7), 0, 1, 6), {}, r"min_available_nodes=7, .* 6 "),
        (Krum(num_malicious_nodes=2), {}, "Krum withstands 2 malicious .* 7 or more; a leg has 6"),
        (Krum(num_malicious_nodes=1), {"fraction": 0.5}, "Krum withstands 1 .* 5 or more; .* 3"),
        (MultiKrum(num_malicious_nodes=2), {}, "MultiKrum withstands 2 .* 7 or more"),
        (Bulyan(num_malicious_nodes=1), {}, "Bulyan withstands 1 .* 7 or more; a leg has 6"),
        (QFedAvg(client_learning_rate=0.1), {}, "QFedAvg .* use daisy_period=None and fraction=1"),
        (
            QFedAvg(client_learning_rate=0.1),
            {"daisy_period": None, "fraction": 0.5},
            "QFedAvg .* use daisy_period=None and fraction=1",
        ),
        (RadonPoint(), {}, "169 hospitals for a model of 167 trainable parameters"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Strategy) else None,
)
def test_a_strategy_that_could_never_aggregate_is_refused_before_the_agreement(
    strategy: Strategy, changes: dict[str, Any], message: str
) -> None:
    grid = UnrulyGrid(tiny())
    with pytest.raises(ValueError, match=message):
        prepare(grid, strategy, **changes)[1]()
    assert {type(decode_signed_request(data)) for _, data in grid.asked} == {Hello}


class Returning(FedAvg):
    """Returns whatever it was told to."""

    def __init__(self, change: Callable[[ArrayRecord], ArrayRecord | None]) -> None:
        super().__init__()
        self.change = change

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        return self.change(arrays), metrics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: None, "Returning made no aggregate of 6 models"),
        (lambda arrays: ArrayRecord({}), "other names or shapes"),
        (
            lambda arrays: ArrayRecord({n: Array(a.numpy()[None]) for n, a in arrays.items()}),
            "other names or shapes",
        ),
        (
            lambda arrays: ArrayRecord({n: Array(a.numpy() * np.nan) for n, a in arrays.items()}),
            "values that are not finite",
        ),
    ],
    ids=["nothing", "no arrays", "other shapes", "NaN"],
)
def test_an_aggregate_that_is_none_ends_the_run(
    change: Callable[[ArrayRecord], ArrayRecord | None], message: str
) -> None:
    with pytest.raises(AggregationError, match=message):
        run_feddc(UnrulyGrid(tiny()), Returning(change))


def test_a_strategy_that_samples_by_itself_is_refused() -> None:
    class Sampling(Largest):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            return list(super().configure_train(server_round, arrays, config, grid))[:3]

    grid = UnrulyGrid(tiny())
    with pytest.raises(AggregationError, match="Sampling chose 3 of the leg's 6 hospitals"):
        run_feddc(grid, Sampling())
    assert not any(isinstance(decode_signed_request(data), SetUp) for _, data in grid.asked)


def test_trimming_everything_is_the_strategys_own_error() -> None:
    strategy = FedTrimmedAvg(beta=0.2)
    strategy.beta = 0.6
    with pytest.raises(AggregationError, match=r"beta=0\.6 is too large"):
        run_feddc(UnrulyGrid(tiny()), strategy)
