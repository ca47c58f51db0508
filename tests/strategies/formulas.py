"""The aggregations, as their papers write them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.strategies.recorded_aggregations import Aggregation, Step, Vector


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
    "krum": ({"krum_malicious": 1}, lambda: krum),
    "multi-krum": ({"krum_malicious": 1}, lambda: multi_krum),
    "bulyan": ({"krum_malicious": 1, "hospitals": 8}, lambda: bulyan),
    "qfedavg": ({"daisy_period": 0}, lambda: q_fair),
}
