"""Evaluation of models on the coordinator's test set, in eval mode."""

from collections.abc import Sequence

import numpy as np

from learning.data import Examples
from learning.evaluation import HeldOutEvaluation, evaluate_predictions
from learning.metrics import Metrics
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from protocol.model_bytes import ModelState


class Evaluator:
    """Evaluates models on one test set."""

    def __init__(
        self, training: TrainingSettings, task: TaskSpec, test: Examples | None, *, seed: int
    ) -> None:
        self._network = Network(training, task, seed=seed)
        self._examples = test if test is not None and len(test) else None
        self._test = None if self._examples is None else self._network.tensors(self._examples)
        self.first_model = ModelState(*self._network.arrays())

    def evaluate(self, model: ModelState) -> Metrics | None:
        """Return the model's metrics, or None without a test set."""
        if self._test is None:
            return None
        self._network.load(model.parameters, model.buffers)
        return self._network.evaluate(*self._test)

    def figures(self, model: ModelState, classes: Sequence[str]) -> HeldOutEvaluation | None:
        """Return all figures of a final model with their intervals.

        None without a test set, and of a model that has diverged.
        """
        if self._examples is None:
            return None
        self._network.load(model.parameters, model.buffers)
        chances = self._network.probabilities(self._examples.features)
        if not np.isfinite(chances).all():
            return None
        return evaluate_predictions(chances, self._examples.labels, classes)
