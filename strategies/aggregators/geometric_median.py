"""The geometric median: the point with the smallest sum of distances to the models, which hospitals
holding less than half of the weight cannot carry away."""

from collections.abc import Iterable
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from numpy.typing import ArrayLike

from .flatten import FloatArray, models_as_points, point_as_model


def geometric_median(
    points: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
) -> FloatArray:
    """Return the y that minimises Σ wᵢ‖xᵢ − y‖ over the rows xᵢ of `points`.

    Weiszfeld's iteration with the correction of Vardi and Zhang (PNAS 2000). `tolerance` bounds the
    gradient at the result relative to the largest possible one, Σ wᵢ, so it means the same for
    points of any scale and is not loosened by outliers. `max_iterations` may come first where a
    point is almost the median; the sum was then within 1e-6 of the smallest in all cases measured.
    Where the minimiser is not unique (an even number of points on a line, of equal weight) the
    result is not one of the points but between them.
    """
    points, weights = _checked(points, weights)
    # The coordinate-wise median starts near the bulk of the points, whatever the outliers do. As
    # origin it keeps the digits of models that differ little from one another.
    centre = np.median(points, axis=0)
    places = points - centre
    scale = np.abs(places).max(initial=0.0)
    if scale == 0.0:
        return centre
    places /= scale  # so that no squared distance overflows or vanishes
    enough = tolerance * weights.sum()

    estimate = np.zeros_like(centre)
    ruled_out: set[int] = set()
    for _ in range(max_iterations):
        pull, stiffness, held = _forces(places, weights, estimate)
        strength = float(np.linalg.norm(pull))
        if strength <= enough:
            break
        # Towards a point that is itself the median the iteration only creeps: try the point first.
        nearest = int(np.argmin(np.linalg.norm(places - estimate, axis=1)))
        if nearest not in ruled_out:
            ruled_out.add(nearest)
            pull_there, _, held_there = _forces(places, weights, places[nearest])
            if np.linalg.norm(pull_there) <= held_there + enough:
                return cast(FloatArray, points[nearest].copy())
        # The points at the estimate hold it back: only the rest of the pull shortens the sum.
        estimate = estimate + (1.0 - held / strength) * pull / stiffness
    return cast(FloatArray, centre + scale * estimate)


def _checked(points: ArrayLike, weights: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or len(points) == 0:
        raise ValueError(
            "geometric median: points must be a table with one row for each point and at least "
            f"one row, got shape {points.shape}"
        )
    weights = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (len(points),):
        raise ValueError(
            f"geometric median: {len(points)} points need as many weights, "
            f"got shape {weights.shape}"
        )
    if not (np.isfinite(weights).all() and (weights >= 0.0).all() and weights.any()):
        raise ValueError(
            "geometric median: weights must be finite, none negative and at least one positive, "
            f"got {weights.tolist()}"
        )
    counts = weights > 0.0
    return (points, weights) if counts.all() else (points[counts], weights[counts])


def _forces(
    points: FloatArray, weights: FloatArray, place: FloatArray
) -> tuple[FloatArray, float, float]:
    """Return what pulls at `place`: Σ wᵢ(xᵢ − y)/dᵢ, Σ wᵢ/dᵢ, and the weight of the points there.

    `place` is the median exactly if the pull of the points elsewhere is no stronger than the
    weight of those at it.
    """
    away = points - place
    distances = np.linalg.norm(away, axis=1)
    here = distances == 0.0
    inverse = np.divide(weights, distances, out=np.zeros_like(weights), where=~here)
    return inverse @ away, float(inverse.sum()), float(weights[here].sum())


class GeometricMedian(FedAvg):
    """Aggregate to the geometric median of the models, weighted by `weighted_by_key`.

    Models with values that are not finite are left out and named in the log. All parameters are
    those of FedAvg.
    """

    def aggregate_points(
        self, server_round: int, points: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Return the geometric median of the points."""
        return geometric_median(points, weights)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the models and the metrics of the replies."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        contents, points = models_as_points(valid)
        if not contents:
            return None, None
        metrics = [next(iter(content.metric_records.values())) for content in contents]
        weights = [cast(float, record[self.weighted_by_key]) for record in metrics]
        median = self.aggregate_points(server_round, points, np.array(weights))
        return (
            point_as_model(median, like=contents[0]),
            self.train_metrics_aggr_fn(contents, self.weighted_by_key),
        )
