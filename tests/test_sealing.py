"""Sealing changes who can read a model, and nothing about the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.messages import Trained


@pytest.mark.parametrize(
    "changes",
    [{}, {"optimizer": "adam", "learning_rate": 0.01}, {"fraction": 0.5, "init": "own"}],
    ids=["sgd", "adam, whose state travels", "subsampling, own init"],
)
def test_sealed_and_unsealed_runs_end_with_the_same_parameters(
    run_tiny: Any, tmp_path: Path, changes: dict[str, Any]
) -> None:
    sealed = run_tiny(run_dir=str(tmp_path / "sealed"), **changes)
    plain = run_tiny(run_dir=str(tmp_path / "plain"), sealed=False, **changes)

    assert (sealed.summary["sealed"], plain.summary["sealed"]) == (True, False)
    assert set(sealed.model) == set(plain.model)
    for name, array in plain.model.items():
        assert np.array_equal(sealed.model[name], array)


def test_only_aggregations_show_models_to_the_coordinator(run_tiny: Any) -> None:
    run = run_tiny()
    replies = [reply for _, reply in run.grid.replies if isinstance(reply, Trained)]
    assert sum(not reply.sealed for reply in replies) == 3 * 6  # aggregations, hospitals
    assert run.summary["readable_models"] == 3 * 6


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_narrower_numbers_halve_the_bytes_and_change_the_model_little(
    run_tiny: Any, tmp_path: Path, wire: str
) -> None:
    changes = {"precision": "float32", "model_options": '{"hidden": [64]}', "sealed": False}
    full = run_tiny(run_dir=str(tmp_path / "full"), **changes)
    narrow = run_tiny(run_dir=str(tmp_path / "narrow"), wire_dtype=wire, **changes)

    assert narrow.summary["bytes_up"] < 0.65 * full.summary["bytes_up"]
    for name, array in full.model.items():
        assert narrow.model[name].dtype == np.float32
        np.testing.assert_allclose(narrow.model[name], array, atol=0.02)
        assert not np.array_equal(narrow.model[name], array)
