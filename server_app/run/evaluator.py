"""Evaluation of models on the coordinator's test set, in eval mode."""

from learning.data import Examples
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
        self._test = self._network.tensors(test) if test is not None and len(test) else None
        self.first_model = ModelState(*self._network.arrays())

    def evaluate(self, model: ModelState) -> Metrics | None:
        """Return the model's metrics, or None without a test set."""
        if self._test is None:
            return None
        self._network.load(model.parameters, model.buffers)
        return self._network.evaluate(*self._test)
