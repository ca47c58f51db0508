"""Aggregation legs: pass the models of the stack to a Flower strategy and return its aggregate."""

import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import WARNING

import numpy as np
import torch
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    Strategy,
)
from numpy.typing import NDArray
from torch import Tensor

from lab.flower.in_process import InProcessGrid
from learning.settings import TrainingSettings
from operation.config import Scalar
from operation.flower.logger import only_from
from protocol.model_bytes import Arrays, ModelState
from strategies.aggregators.geometric_median import GeometricMedian
from strategies.aggregators.radon import RadonPoint
from strategies.identifiers import Position, cohort_node
from strategies.wrapped.adapter import Contribution, Wrapped
from strategies.wrapped.requirements import least_hospitals, least_models

from .routes import Positions, Work
from .stack import Stack
from .training_interface import LegMetrics

# Strategies whose aggregate depends only on the weighted mean of the models.
_OF_THE_MEAN = (FedAvg, FedProx, FedAvgM, FedAdam, FedYogi, FedAdagrad)
_FLOWERS_MEAN_OF_METRICS = FedAvg().train_metrics_aggr_fn
# Strategies whose aggregate is that mean, without state of their own.
_THE_MEAN = (FedAvg, FedProx)
# Strategies that aggregate a table of models; a subclass may do more with messages.
_OF_POINTS = (RadonPoint, GeometricMedian)


class Diverged(RuntimeError):
    """Too many models hold values that are not finite: the learning rate is too large."""


class Aggregation:
    """Calls the strategy as the Flower path does, one server round per aggregation.

    Converting hundreds of models to Flower messages takes longer than training them. A strategy
    that needs only their mean therefore gets one message with the mean, and a strategy that returns
    the mean is not called at all. This project's own (Radon point, geometric median) get the stack
    as a table with a row for each model. With `own_init` the first aggregation passes the models
    one by one, because the strategy adapter handles independent first models separately.
    """

    def __init__(
        self,
        strategy: Strategy,
        first_model: ModelState,
        *,
        own_init: bool,
        config: Mapping[str, Scalar],
        hospitals: int,
        quorum: float,
    ) -> None:
        self.wrapped = Wrapped(strategy, first_model, own_init=own_init)
        self._strategy = strategy
        self._config = ConfigRecord(dict(config))
        self._grid = InProcessGrid.without_clients()
        self._quorum = quorum
        self._least = least_models(strategy, sum(a.size for a in first_model.parameters.values()))
        self._takes_mean = (
            type(strategy) in _OF_THE_MEAN
            and getattr(strategy, "train_metrics_aggr_fn", None) is _FLOWERS_MEAN_OF_METRICS
        )
        self._takes_points = type(strategy) in _OF_POINTS
        self.one_by_one = own_init
        self.agreed = self._configure(np.arange(hospitals))

    @property
    def training(self) -> TrainingSettings:
        """The training settings that hospitals agree to; FedProx adds its μ to them."""
        return TrainingSettings.parse(dict(self.agreed), source=type(self._strategy).__name__)

    def aggregate(
        self,
        stack: Stack,
        work: Work,
        weights: NDArray[np.float64],
        metrics: LegMetrics,
    ) -> ModelState:
        """Return the aggregate of the leg's models, without models that are not finite."""
        if self._takes_points and not self.one_by_one and not stack.buffers:
            points = _points(stack, work.slots)
            if np.isfinite(points).all():  # cheaper than looking at each tensor
                return self.wrapped.aggregate_points(points, weights, {})
        returns_mean = self._takes_mean and type(self._strategy) in _THE_MEAN
        if returns_mean and not self.one_by_one:
            mean = _mean(stack, work.slots, weights / weights.sum())
            if _is_finite(mean):  # then all models are
                self.wrapped.model = mean
                return mean
        usable = self._usable(stack, work)
        slots, hospitals, weights = work.slots[usable], work.hospitals[usable], weights[usable]
        if self._takes_points and not self.one_by_one:
            return self.wrapped.aggregate_points(
                _points(stack, slots), weights, _mean_buffers(stack, slots, weights)
            )
        losses, accuracies = (column[usable] for column in metrics.in_order())
        if self._takes_mean and not self.one_by_one:
            fractions = weights / weights.sum()
            mean = _mean(stack, slots, fractions)
            if returns_mean:
                self.wrapped.model = mean
                return mean
            self._configure(hospitals[: least_hospitals(self._strategy)])
            contributions = [
                Contribution(
                    node=cohort_node(Position(int(hospitals[0]))),
                    model=mean,
                    weight=float(weights.sum()),
                    loss=float(fractions @ losses),
                    accuracy=float(fractions @ accuracies),
                )
            ]
        else:
            self._configure(work.hospitals)
            contributions = [
                Contribution(
                    cohort_node(Position(int(hospital))),
                    stack.model(int(slot)),
                    weight,
                    loss,
                    accuracy,
                )
                for hospital, slot, weight, loss, accuracy in zip(
                    hospitals,
                    slots,
                    weights.tolist(),
                    losses.tolist(),
                    accuracies.tolist(),
                    strict=True,
                )
            ]
            self.one_by_one = False
        with _inside_flower():
            return self.wrapped.aggregate(contributions)[0]

    def _configure(self, hospitals: Positions) -> ConfigRecord:
        nodes = [cohort_node(Position(hospital)) for hospital in hospitals.tolist()]
        with _inside_flower():
            agreed = self.wrapped.configure(nodes, self._config, self._grid)
        if getattr(self, "agreed", agreed) != agreed:
            raise ValueError(
                f"{type(self._strategy).__name__} changed its training config during the run: "
                "hospitals agree to the settings once, before the experiment starts"
            )
        return agreed

    def _usable(self, stack: Stack, work: Work) -> NDArray[np.bool_]:
        rows = torch.from_numpy(work.slots)
        usable = torch.ones(len(work), dtype=torch.bool)
        for tensor in (*stack.parameters.values(), *stack.buffers.values()):
            if not bool(torch.isfinite(tensor.sum())):  # cheaper than checking every element
                usable &= torch.isfinite(tensor[rows]).flatten(1).all(1).cpu()
        count, needed = int(usable.sum()), max(self._least, math.ceil(self._quorum * len(work)))
        if count < needed:
            raise Diverged(
                f"round {work.last_round + 1}: {len(work) - count} of {len(work)} models hold "
                "values that are not finite; lower the learning rate"
            )
        return usable.numpy()


@contextmanager
def _inside_flower() -> Iterator[None]:
    """Suppress Flower's two log lines per aggregation and make its garbage collections cheap.

    Some strategies call `gc.collect` for every model, which takes a fifth of a second with all of
    torch's objects. Frozen objects are skipped.
    """
    is_frozen = gc.get_freeze_count() > 0  # by the program, which would not want it undone
    if not is_frozen:
        gc.freeze()
    try:
        with only_from(WARNING):
            yield
    finally:
        if not is_frozen:
            gc.unfreeze()


def _is_finite(model: ModelState) -> bool:
    arrays = (*model.parameters.values(), *model.buffers.values())
    return all(np.isfinite(array).all() for array in arrays)


def _points(stack: Stack, slots: Positions) -> NDArray[np.float64]:
    """Return the models' parameters as rows, in roster order."""
    columns = [tensor.flatten(1) for tensor in stack.parameters.values()]
    return torch.cat(columns, dim=1).cpu().numpy()[slots].astype(np.float64)


def _mean(stack: Stack, slots: Positions, fractions: NDArray[np.float64]) -> ModelState:
    """Return the weighted mean; buffers are averaged in float64 and counters stay integers."""
    parameters = {
        name: _average(tensor, slots, fractions).cpu().numpy()
        for name, tensor in stack.parameters.items()
    }
    return ModelState(parameters, _mean_buffers(stack, slots, fractions))


def _mean_buffers(stack: Stack, slots: Positions, weights: NDArray[np.float64]) -> Arrays:
    buffers: Arrays = {}
    for name, tensor in stack.buffers.items():
        mean = _average(tensor, slots, weights / weights.sum(), torch.float64)
        whole = mean if tensor.is_floating_point() else mean.round()
        buffers[name] = whole.to(tensor.dtype).cpu().numpy()
    return buffers


def _average(
    tensor: Tensor,
    slots: Positions,
    fractions: NDArray[np.float64],
    dtype: torch.dtype | None = None,
) -> Tensor:
    if len(slots) < len(tensor):
        tensor = tensor[torch.from_numpy(slots).to(tensor.device)]
    else:
        fractions = fractions[np.argsort(slots)]
    tensor = tensor.to(dtype or tensor.dtype)
    if (fractions == fractions[0]).all():
        return tensor.mean(0)
    weights = torch.from_numpy(fractions).to(tensor.device, tensor.dtype)
    mean: Tensor = torch.tensordot(weights, tensor, dims=1)
    return mean
