"""The engine and the Flower path compute the same private models, from the same injected noise.

In a simulation the key of the noise follows from the seed, in both: so the very numbers that every
hospital adds are the same. Simulated hospitals run the code of real ones.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from lab.engine import run
from lab.flower.in_process import simulate_in_process
from server_app.config.run_config import Settings
from tests.conftest import TINY

PATIENT = {
    "sealed": False,
    "held-out": 0,
    "rounds": 6,
    "aggregation-period": 3,
    "batch-size": 0,
    "privacy-unit": "patient",
    "nominal-patients": 8,
    "clip-norm": 0.3,
    "learning-rate": 0.5,
}
NOISE = PATIENT | {"noise-multiplier": 0.7}
CANCELLED = NOISE | {"average-noise-multiplier": 0.9, "averaging": "secure", "sealed": True}
CASES: dict[str, dict[str, Any]] = {
    "clipped, noise off": PATIENT,
    "noise": NOISE,
    "noise, longer legs": NOISE | {"daisy-period": 2, "aggregation-period": 4},
    "noise, Adam": NOISE | {"optimizer": "adam", "learning-rate": 0.01},
    "noise, Poisson batches": NOISE | {"batch-size": 4},
    "hospital's update": NOISE | {"privacy-unit": "hospital"},
}


def compared(case: dict[str, Any], folder: Path, tolerance: float) -> dict[str, np.ndarray]:
    """Train on both; return the model, which is the same."""
    settings = Settings.from_run_config(TINY | case, source="test")
    simulate_in_process(settings, folder)
    flower = load_file(folder / "model.safetensors")
    engine = run(settings, backend="batched").model.parameters
    assert set(engine) == set(flower)
    for name, array in engine.items():
        np.testing.assert_allclose(array, flower[name], rtol=0, atol=tolerance)
    return flower


_EVERY_DAY = ("clipped, noise off", "noise", "hospital's update")


@pytest.mark.parametrize(
    "case",
    [case if case in _EVERY_DAY else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
)
def test_engine_and_flower_agree(case: str, tmp_path: Path) -> None:
    compared(CASES[case], tmp_path / "run", 1e-12)


@pytest.mark.slow
def test_engine_and_flower_agree_with_cancelled_noise(tmp_path: Path) -> None:
    """Through secure sums, whose fixed-point numbers have 32 bits after the point."""
    compared(CANCELLED, tmp_path / "run", 1e-8)


@pytest.mark.slow
def test_the_injected_noise_is_in_the_model(tmp_path: Path) -> None:
    """Without it, the comparison above would hold for two paths that both forget the noise."""
    clean, noisy = (compared(c, tmp_path / str(len(c)), 1e-12) for c in (PATIENT, NOISE))
    moved = max(float(np.abs(noisy[name] - clean[name]).max()) for name in clean)
    assert moved > 1e-3
