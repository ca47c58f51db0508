"""Evaluate a final model on this hospital's held-out examples, beside one trained here alone.

The figures stay at the hospital. They are computed after the experiment has closed, in a process
of their own: in the answer to the coordinator their time would depend on the number of patients.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from learning.data import Examples, Partition
from learning.evaluation import HeldOutEvaluation, evaluate_predictions
from learning.evaluation.evaluation_text import evaluation_text
from learning.evaluation.held_out_evaluation import predicted_classes

from .model_folder import EVALUATION, EVALUATION_TEXT, PENDING, ModelFolder
from .saved_network import SavedNetwork
from .training_alone import train_alone

_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Disagreement:
    """On how many held-out examples only one of the two models is right.

    `p_value` is that of McNemar's exact test: how often chance alone makes such a difference.
    """

    only_study: int
    only_alone: int
    p_value: float


def evaluate_model(
    folder: ModelFolder,
    partition: Partition,
    *,
    device: str,
    alone: bool,
    on_step: Callable[[str], None] = lambda step: None,
) -> str:
    """Write evaluation.json and evaluation.txt; return the text.

    The figures of the study's model are written first: training alone may take hours. `on_step`
    receives what is under way.
    """
    on_step("evaluating the study's model")
    saved = SavedNetwork(folder, device=device)
    held_out = partition.held_out
    classes = saved.classes if saved.codebook else partition.classes or saved.classes
    chances = saved.network.probabilities(held_out.features)
    found = evaluate_predictions(chances, held_out.labels, classes)
    if not len(held_out):
        return _write(folder, found, missing="not trained: no example is held out")
    text = _write(folder, found, missing=PENDING if alone else "not trained")
    if not alone:
        return text
    on_step(f"training on your data alone, {saved.descriptor.rounds:,} rounds")
    network = train_alone(saved.descriptor, partition.train, saved.first_model(), device=device)
    if network is None:
        return _write(folder, found, missing="diverged: its numbers are not finite")
    others = network.probabilities(held_out.features)
    compared = evaluate_predictions(others, held_out.labels, classes)
    return _write(folder, found, compared, compare(chances, others, held_out))


def compare(
    study: NDArray[np.float64], alone: NDArray[np.float64], held_out: Examples
) -> Disagreement:
    """Compare two models' predictions for the same examples."""
    first, second = (predicted_classes(one) == held_out.labels for one in (study, alone))
    only_study, only_alone = int((first & ~second).sum()), int((second & ~first).sum())
    differing = only_study + only_alone
    p_value = float(binomtest(only_study, differing).pvalue) if differing else 1.0
    return Disagreement(only_study, only_alone, p_value)


def _write(
    folder: ModelFolder,
    study: HeldOutEvaluation,
    alone: HeldOutEvaluation | None = None,
    comparison: Disagreement | None = None,
    *,
    missing: str = "",
) -> str:
    content: dict[str, Any] = {
        "experiment": folder.path.name,
        "study": study.as_dict(),
        "alone": alone.as_dict() if alone else None,
        "alone_missing": missing,
        "comparison": asdict(comparison) if comparison else None,
    }
    parts = [evaluation_text("the study's model", study)]
    if alone is None:
        parts.append(f"a model trained on your data alone: {missing}")
    else:
        parts.append(evaluation_text("a model trained on your data alone", alone))
    if comparison is not None:
        parts.append(_verdict(comparison))
    text = "\n\n".join(parts) + "\n"
    folder.write(
        {
            EVALUATION_TEXT: text.encode(),
            EVALUATION: (json.dumps(content, indent=2) + "\n").encode(),
        }
    )
    return text


def _verdict(found: Disagreement) -> str:
    counts = (
        f"Right with the study's model only: {found.only_study}; with the model trained alone "
        f"only: {found.only_alone} (p = {found.p_value:.2g})."
    )
    if found.p_value >= _SIGNIFICANT:
        return (
            f"{counts}\nToo few examples, or too small a difference, to say which is better here."
        )
    better = "The study's model" if found.only_study > found.only_alone else "The model alone"
    return f"{counts}\n{better} is better on your held-out examples."
