"""The iterated Radon point, which aggregates many models with few parameters (the paper's appendix
"Iterated Radon Points and the Radon Machine")."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import FedAvg
from numpy.typing import ArrayLike, NDArray

from operation.flower.logger import log
from protocol.randomness import stream

from .flatten import FloatArray, models_as_points, point_as_model


def iterated_radon_point(points: ArrayLike, iterations: int) -> FloatArray:
    """Return the point left after `iterations` times replacing each r rows by their Radon point.

    Neighbouring rows form a group. There must be exactly r**iterations rows of dimension r − 2.
    """
    points = np.asarray(points, dtype=np.float64)
    number = radon_number(points.shape[-1])
    if points.ndim != 2 or len(points) != number**iterations:
        raise ValueError(
            f"{iterations} iterations of Radon points need a table of exactly "
            f"{number}**{iterations} points with {points.shape[-1]} coordinates (Radon number "
            f"{number}), got shape {points.shape}: choose the points with group_models"
        )
    for _ in range(iterations):
        points = radon_point(points.reshape(-1, number, points.shape[-1]))
    return cast(FloatArray, points[0])


def radon_number(dimension: int) -> int:
    """Return how many points a Radon point needs."""
    return dimension + 2


def radon_point(points: ArrayLike) -> FloatArray:
    """Return 𝔯(λ) = Σ_I λᵢsᵢ/Λ: a point in the convex hulls of both parts of a Radon partition.

    `points` has shape (…, r, d) with r = d + 2; leading dimensions are independent groups.
    """
    points = np.asarray(points, dtype=np.float64)
    weights = np.maximum(radon_coefficients(points), 0.0)
    weights /= weights.sum(axis=-1, keepdims=True)
    # Summed as differences from the heaviest point, so that a far origin costs no digits and a
    # part of one point gives exactly that point.
    heaviest = np.argmax(weights, axis=-1)[..., None, None]
    origin = np.take_along_axis(points, heaviest, axis=-2)
    return cast(FloatArray, (origin + weights[..., None, :] @ (points - origin))[..., 0, :])


def radon_coefficients(points: FloatArray) -> FloatArray:
    """Return a λ ≠ 0 of shape (…, r) with Σ λᵢsᵢ = 0 and Σ λᵢ = 0 for each group of points.

    The parts of the Radon partition are I = {λᵢ ≥ 0} and J = {λⱼ < 0}. Points in general position
    have one λ up to a factor, so the Radon point is the paper's, which sets λ₁ = 1; here the sign
    makes λᵢ > 0 on the smaller part and ‖λ‖ = 1.
    """
    *_, size, dimension = points.shape
    if size != radon_number(dimension):
        raise ValueError(
            f"the Radon point of points with {dimension} coordinates needs exactly "
            f"{radon_number(dimension)} of them, got {size}"
            + (": for more points use iterated_radon_point" if size > dimension + 2 else "")
        )
    # Moving the origin does not change λ, and keeps the digits in which the points differ.
    centred = points - points.mean(axis=-2, keepdims=True)
    system = np.concatenate([np.ones((*points.shape[:-1], 1)), centred], axis=-1)
    # The last column of Q is orthogonal to all columns of the r × (r−1) system, whatever its rank:
    # unlike solving for λ₁ = 1, this has no singular case. Householder QR is backward stable column
    # by column, so both hulls are met to rounding even where coordinates differ widely in scale.
    coefficients = np.linalg.qr(system, mode="complete").Q[..., -1]
    for group, row in zip(
        points.reshape(-1, size, dimension), coefficients.reshape(-1, size), strict=True
    ):
        if twins := _twins(group):
            row[:] = 0.0
            row[list(twins)] = np.sqrt(0.5), -np.sqrt(0.5)
    positive_is_larger = np.sign(coefficients).sum(axis=-1, keepdims=True) > 0
    return cast(FloatArray, np.where(positive_is_larger, -coefficients, coefficients))


def _twins(group: FloatArray) -> tuple[int, int] | None:
    """Return two places of the point that occurs most often (the first such), if any occurs twice.

    Twins are a Radon partition of their own. If several pairs are there λ is not unique, and
    rounding would choose it.
    """
    rows = [row.tobytes() for row in group + 0.0]  # + 0.0 makes −0.0 the same as 0.0
    commonest, count = Counter(rows).most_common(1)[0]
    if count == 1:
        return None
    first = rows.index(commonest)
    return first, rows.index(commonest, first + 1)


class RadonPoint(FedAvg):
    """Aggregate to the iterated Radon point of the models, unweighted.

    Parameters
    ----------
    iterations : int (default: 1)
        The paper's h. A model with d parameters needs (d + 2)**h hospitals.
    minimum : int | None (default: None)
        Fewer models than this are never aggregated. The Radon number is always a minimum.
    seed : bytes (default: b"")
        Decides which models are used twice or not at all when their number is not (d + 2)**h.
    **fedavg
        The parameters of FedAvg; `weighted_by_key` concerns the metrics only.
    """

    def __init__(
        self, *, iterations: int = 1, minimum: int | None = None, seed: bytes = b"", **fedavg: Any
    ) -> None:
        super().__init__(**fedavg)
        if iterations < 1:
            raise ValueError(f"radon: iterations must be at least 1, got {iterations}")
        self.iterations = iterations
        self.minimum = minimum
        self.seed = seed

    def check(self, parameters: int, hospitals: int) -> None:
        """Raise ValueError if models of this size can't be aggregated, before anybody trains."""
        needed = radon_number(parameters) ** self.iterations
        if hospitals < needed:
            many = self.iterations > 1
            raise ValueError(
                f"radon with {self.iterations} iteration{'s' if many else ''} needs at least "
                f"{needed} hospitals for a model of {parameters} trainable parameters (its Radon "
                f"number is parameters + 2{f', to the power {self.iterations}' if many else ''}); "
                f"there are {hospitals}: choose a smaller model"
                f"{', fewer iterations' if many else ''} or another aggregator"
            )
        if self.minimum is not None and hospitals < self.minimum:
            raise ValueError(
                f"radon: the minimum is {self.minimum} hospitals, there are {hospitals}: "
                "lower the minimum or enrol more hospitals"
            )

    def summary(self) -> None:
        """Log summary configuration of the strategy."""
        log(INFO, "\t├──> Radon settings:")
        log(INFO, "\t│\t├── Iterations: %d", self.iterations)
        log(INFO, "\t│\t└── Minimum models: %s", self.minimum or "the Radon number")
        super().summary()

    def aggregate_points(
        self, server_round: int, points: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Return the iterated Radon point of the points; it has no weights."""
        return self._aggregate(server_round, points)[0]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the models and the metrics of the replies."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        contents, points = models_as_points(valid)
        if not contents:
            raise AggregationError(f"radon: no usable model arrived in server round {server_round}")
        aggregate, groups = self._aggregate(server_round, points)
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        counts = {
            "radon-iterations": groups.iterations,
            "radon-filled": groups.filled,
            "radon-left-out": groups.left_out,
        }
        return point_as_model(aggregate, like=contents[0]), MetricRecord({**metrics, **counts})

    def _aggregate(self, server_round: int, points: FloatArray) -> "tuple[FloatArray, Groups]":
        number = radon_number(points.shape[1])
        needed = max(number, self.minimum or 0)
        if len(points) < needed:
            raise AggregationError(
                f"radon: {len(points)} usable models arrived in server round {server_round}, "
                f"at least {needed} are needed (Radon number {number}, minimum "
                f"{self.minimum or 'not set'}): wait until more hospitals are back, then resume"
            )
        if len(points) == number**self.iterations:  # everyone is there: nothing to draw
            return iterated_radon_point(points, self.iterations), Groups(
                np.arange(len(points)), self.iterations, filled=0, left_out=0
            )
        generator = radon_generator(self.seed, server_round)
        groups = group_models(len(points), number, self.iterations, generator)
        if groups.iterations < self.iterations or groups.filled or groups.left_out:
            log(
                WARNING,
                "aggregate_train: %d models for radon instead of %d: %d of %d iterations, "
                "%d models counted twice, %d left out",
                len(points),
                number**self.iterations,
                groups.iterations,
                self.iterations,
                groups.filled,
                groups.left_out,
            )
        return iterated_radon_point(points[groups.members], groups.iterations), groups


@dataclass(frozen=True)
class Groups:
    """Which of the present models are aggregated: indices, neighbours forming the groups."""

    members: NDArray[np.intp]
    iterations: int
    filled: int
    left_out: int


def group_models(
    present: int, number: int, iterations: int, generator: np.random.Generator
) -> Groups:
    """Choose number**h of the `present` models, h being `iterations` or as many as they allow.

    While at least half of the models are there, some count twice, never within one group; with
    fewer, h is lowered. With exactly number**h every model counts once, in the order given.
    """
    if present < number:
        raise ValueError(f"{present} models can't be grouped by their Radon number {number}")
    # A single group can't be filled up: its Radon point would be the model that is in it twice.
    while iterations > 1 and 2 * present < number**iterations:
        iterations -= 1
    places = number**iterations
    if present >= places:
        members = np.sort(generator.choice(present, places, replace=False))
        return Groups(members, iterations, filled=0, left_out=present - places)
    twice = generator.choice(present, places - present, replace=False)
    dealt = np.sort(np.concatenate([np.arange(present), twice]))
    # Dealt in turn like cards, the two copies of a model, being neighbours, never meet.
    members = dealt.reshape(number, -1).T.reshape(-1)
    return Groups(members, iterations, filled=places - present, left_out=0)


def radon_generator(seed: bytes, server_round: int) -> np.random.Generator:
    """Return the stream of one server round, the same however often the round is repeated."""
    return stream(seed, "radon", server_round)
