"""Two comparisons on one thread, by processor time: a hand-written step, the pure Radon point."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor

from benchmarks.support.engine_tasks import task
from lab.engine import run
from lab.engine.run_state import RunState
from lab.engine.training_interface import LegMetrics
from strategies.aggregators.radon import iterated_radon_point

_ROUNDS = (100, 700)
_RADON_CALLS = 100


def mlp_vs_bmm(folder: Path, turns: int) -> dict[str, float]:
    """Compare the engine with a step of 50 MLPs written by hand with torch.bmm, SGD, b = 10.

    Both in client-rounds per second of processor time, from the difference between a long and a
    short run, so that loading data and building networks do not count.
    """
    settings = task("mlp", folder).settings.replace(optimizer="sgd", learning_rate=0.05)

    def engine(rounds: int) -> None:
        run(
            settings.replace(rounds=rounds),
            backend="batched",
            evaluate_every=10**9,
            evaluate_clients=False,
        )

    by_hand = _HandWritten(models=50, examples=10, sizes=(100, 100, 50, 20, 2))
    ratios = []
    for _ in range(turns + 1):
        ours, theirs = _seconds_each_round(engine), _seconds_each_round(by_hand.train)
        ratios.append((50 / ours, 50 / theirs))
    ours, theirs = (median(column) for column in zip(*ratios[1:], strict=True))
    return {
        "client_rounds_per_cpu_s": ours,
        "bmm_client_rounds_per_cpu_s": theirs,
        "vs_bmm": median(engine / hand for engine, hand in ratios[1:]),
    }


def radon_vs_direct(folder: Path, turns: int) -> dict[str, float]:
    """Compare an aggregation of 441 linear models in the engine with the pure function, h = 2.

    The engine's aggregation includes giving the result to all hospitals. The two take turns call by
    call, because the speed of a core that other work shares changes within milliseconds.
    """
    settings = task("linear", folder).settings.replace(
        rounds=10, daisy_period=0, aggregation_period=1, aggregator="radon", radon_iterations=2
    )
    state = RunState(
        settings,
        "batched",
        1,
        evaluate_clients=False,
        evaluate_held_out=False,
        test_sample=None,
    )
    rng = torch.Generator().manual_seed(0)
    nothing = torch.zeros(441, dtype=torch.float64)
    metrics = LegMetrics(nothing, nothing)
    work = state.routes.work(state.legs[0])

    def refill(points: Tensor) -> None:
        columns = torch.split(points, [t[0].numel() for t in state.stack.parameters.values()], 1)
        for tensor, column in zip(state.stack.parameters.values(), columns, strict=True):
            tensor.copy_(column.reshape(tensor.shape))

    seconds: list[float] = []
    direct: list[float] = []
    for _ in range(turns + 1):
        points = torch.randn(441, 19, generator=rng)
        rows = points.numpy().astype(np.float64)
        ours = theirs = 0.0
        for _ in range(_RADON_CALLS):
            refill(points)
            began = time.process_time()
            aggregate = state.aggregation.aggregate(state.stack, work, state.weights(work), metrics)
            state.continue_from(aggregate, work)
            between = time.process_time()
            iterated_radon_point(rows, 2)
            ours, theirs = ours + between - began, theirs + time.process_time() - between
        seconds.append(ours / _RADON_CALLS)
        direct.append(theirs / _RADON_CALLS)
    return {
        "aggregation_ms": 1000 * median(seconds[1:]),
        "direct_ms": 1000 * median(direct[1:]),
        "vs_direct": median(o / d for o, d in zip(seconds[1:], direct[1:], strict=True)),
    }


def _seconds_each_round(train: Callable[[int], None]) -> float:
    times = []
    for rounds in _ROUNDS:
        began = time.process_time()
        train(rounds)
        times.append(time.process_time() - began)
    return (times[1] - times[0]) / (_ROUNDS[1] - _ROUNDS[0])


class _HandWritten:
    """Federated daisy-chaining of MLPs in as few torch calls as possible: no records, no checks."""

    def __init__(self, *, models: int, examples: int, sizes: tuple[int, ...]) -> None:
        rng = torch.Generator().manual_seed(0)
        self._x = torch.randn(models, examples, sizes[0], generator=rng)
        self._y = torch.randint(sizes[-1], (models, examples, 1), generator=rng)
        self._w = [
            torch.randn(models, outputs, inputs, generator=rng) / inputs**0.5
            for inputs, outputs in pairwise(sizes)
        ]
        self._b = [torch.zeros(models, outputs) for outputs in sizes[1:]]
        self._minus_one = torch.full((models, examples, 1), -1.0)

    def train(self, rounds: int) -> None:
        for round_ in range(rounds):
            order = torch.randperm(len(self._x))  # hand-over: examples move, models stay
            self._step(self._x[order], self._y[order], rate=0.05)
            if round_ % 10 == 9:
                for tensor in (*self._w, *self._b):
                    tensor.copy_(tensor.mean(0).expand_as(tensor))

    def _step(self, x: Tensor, y: Tensor, rate: float) -> None:
        inputs = [x]
        last = len(self._w) - 1
        for layer, (w, b) in enumerate(zip(self._w, self._b, strict=True)):
            z = torch.baddbmm(b.unsqueeze(1), inputs[-1], w.transpose(1, 2))
            if layer < last:
                inputs.append(z.relu_())
        gradient = torch.softmax(z, -1).scatter_add_(-1, y, self._minus_one).div_(x.shape[1])
        for layer in range(last, -1, -1):
            above, w = gradient, self._w[layer]
            if layer:
                gradient = torch.bmm(above, w).mul_(inputs[layer] > 0)
            w.baddbmm_(above.transpose(1, 2), inputs[layer], alpha=-rate)
            self._b[layer].sub_(above.sum(1), alpha=rate)
