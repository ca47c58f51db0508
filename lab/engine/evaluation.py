"""Evaluate models on the test set, on a random part of it, and on the hospitals' held-out data."""

from collections.abc import Sequence

import numpy as np

from learning.data import Dataset, Examples, Partition
from learning.metrics import Metrics
from learning.settings import TrainingSettings
from learning.trainer import TaskSpec
from protocol.model_bytes import ModelState
from server_app.run.evaluator import Evaluator

# A stream of its own: callers make generators of the bare seed for other purposes.
_SAMPLE = 0x73616D70


class AggregateEvaluator:
    """Evaluates aggregates and the hospitals' own models.

    The last aggregate is evaluated on the whole test set. Earlier aggregates and the hospitals' own
    models may use `sample` random examples of it, because the whole set can take longer than the
    training.
    """

    def __init__(
        self,
        training: TrainingSettings,
        dataset: Dataset,
        partitions: Sequence[Partition],
        *,
        init_seed: int,
        seed: int,
        sample: int | None,
        held_out: bool,
    ) -> None:
        task = TaskSpec(dataset.shape, len(dataset.classes))

        def on(examples: Examples) -> Evaluator:
            return Evaluator(training, task, examples, seed=init_seed)

        test = dataset.test
        self._whole = on(test)
        self.first_model = self._whole.first_model
        part = sampled(test, sample, seed)
        self._sample = self._whole if part is test else on(part)
        self._held_out = (
            on(pooled([partition.held_out for partition in partitions])) if held_out else None
        )

    def evaluate(self, model: ModelState, *, last: bool) -> Metrics | None:
        """Evaluate a model on the test set; with `last`, on the whole of it."""
        return (self._whole if last else self._sample).evaluate(model)

    def held_out(self, model: ModelState) -> Metrics | None:
        """Evaluate a model on the held-out data of all hospitals, if the caller asked for it."""
        return None if self._held_out is None else self._held_out.evaluate(model)


def sampled(examples: Examples, count: int | None, seed: int) -> Examples:
    """Return `count` random examples, the same for the same seed; all if there are fewer."""
    if not count or count >= len(examples):
        return examples
    rng = np.random.default_rng([seed, _SAMPLE])
    return examples.take(rng.choice(len(examples), size=count, replace=False))


def pooled(parts: Sequence[Examples]) -> Examples:
    """Concatenate the examples of several hospitals."""
    return Examples(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )
