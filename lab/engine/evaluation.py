"""How good models are: on the test set, on a sample of it, on what the hospitals held out."""

from collections.abc import Sequence

import numpy as np

from learning.data import Dataset, Examples, Share
from learning.metrics import Metrics
from learning.settings import TrainingSettings
from learning.trainer import TaskSpec
from protocol.model_bytes import ModelState
from server_app.run.evaluator import Evaluator

# A stream of its own: callers make generators of the bare seed for other purposes.
_SAMPLE = 0x73616D70


class Judge:
    """Judges the last aggregate on the whole test set.

    What is judged often (earlier aggregates, and each hospital's own model) may have to do with
    `sample` random examples of it: a whole test set can take longer than the training.
    """

    def __init__(
        self,
        training: TrainingSettings,
        dataset: Dataset,
        shares: Sequence[Share],
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
        self._held_out = on(pooled([share.held_out for share in shares])) if held_out else None

    def figures(self, model: ModelState, *, last: bool) -> Metrics | None:
        """Judge an aggregate on the test set."""
        return (self._whole if last else self._sample).figures(model)

    def held_out(self, model: ModelState) -> Metrics | None:
        """Judge a model on what all hospitals held out, if that was asked for."""
        return None if self._held_out is None else self._held_out.figures(model)


def sampled(examples: Examples, count: int | None, seed: int) -> Examples:
    """Return so many random examples, the same for a seed; all if there are no more."""
    if not count or count >= len(examples):
        return examples
    rng = np.random.default_rng([seed, _SAMPLE])
    return examples.take(rng.choice(len(examples), size=count, replace=False))


def pooled(parts: Sequence[Examples]) -> Examples:
    """Return the examples of several hospitals together."""
    return Examples(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )
