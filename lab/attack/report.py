"""Run all attacks on the study, with and without noise."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .membership import attack_membership
from .picture import draw
from .reconstruction import Reconstruction, reconstruct
from .scenario import (
    OWN_RECORDS,
    accuracy_and_epsilon,
    example_rows,
    first_model,
    hand_overs_after,
    knowledge,
    study,
    waves,
)

BATCHES = (2, 4, 8)


def attack(
    picture: Path | None, *, seed: int = 0, on_step: Callable[[str], None] = lambda step: None
) -> dict[str, Any]:
    """Return the results of `feddc lab attack`; draw reconstructed records into `picture`.

    `on_step` receives what is under way.
    """
    began = time.perf_counter()
    membership, found = [], {}
    for noise, how in ((False, "without noise"), (True, "with noise")):
        on_step(f"{how}: whose records were trained on?")
        membership.append(_membership(noise=noise, seed=seed))
        on_step(f"{how}: reconstructing records")
        found[noise] = _reconstructions(noise=noise, seed=seed)
    epsilon = membership[1]["epsilon"]
    if picture is not None:
        without, with_noise = ({batch: each[0] for batch, each in found[n].items()} for n in found)
        side = math.isqrt(without[BATCHES[0]].records.shape[1])
        draw(picture, without, with_noise, side, epsilon)
    return {
        "delta": study(noise=True, seed=seed).algorithm.target_delta,
        "own_records": OWN_RECORDS,
        "membership": membership,
        "reconstruction": [
            {
                "batch": batch,
                "epsilon": epsilon if noise else None,
                "records": sum(len(one.found) for one in each),
                "reconstructed": float(np.concatenate([one.found for one in each]).mean()),
            }
            for noise, by_batch in found.items()
            for batch, each in by_batch.items()
        ],
        "picture": None if picture is None else str(picture),
        "seconds": round(time.perf_counter() - began, 1),
    }


def _membership(*, noise: bool, seed: int) -> dict[str, Any]:
    settings = study(noise=noise, seed=seed)
    accuracy, epsilon = accuracy_and_epsilon(settings)
    results = attack_membership(waves(settings), knowledge(settings))
    return {
        "epsilon": epsilon,
        "accuracy": accuracy,
        "attacks": [
            {
                "attack": each.attack,
                "true_positives": {f"{rate:g}": asdict(value) for rate, value in each.at.items()},
                "advantage": each.advantage,
                "members": each.members,
                "strangers": each.strangers,
            }
            for each in results
        ],
    }


def _reconstructions(*, noise: bool, seed: int) -> dict[int, list[Reconstruction]]:
    """Attack every hospital's first hand-over, for hospitals with few records each."""
    found = {}
    for batch in BATCHES:
        settings = study(noise=noise, seed=seed, batch=batch)
        begun = first_model(settings)
        found[batch] = [
            reconstruct(
                begun,
                each.model,
                settings.training.learning_rate,
                example_rows(each.members),
            )
            for each in hand_overs_after(settings, begun, 0, hospitals=10)
        ]
    return found
