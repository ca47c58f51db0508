"""Volumes train in both engines, and both compute the same model."""

from pathlib import Path

import nibabel
import numpy as np
import pytest
from safetensors.numpy import load_file

from lab.engine import run
from lab.experiments.definition import Values
from lab.experiments.own_data import own_data
from lab.flower.in_process import simulate_in_process
from learning.data import DataError
from learning.local_data import load_dataset
from learning.settings import LocalSettings
from server_app.config.run_config import Settings
from tests.conftest import TINY

CODEBOOK = """
classes = ["ill", "well"]
[images]
view = "volume"
size = [8, 8, 8]
intensity = "percentiles"
percentiles = [1.0, 99.0]
"""


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """Return 40 volumes of 40 patients, with a table of labels."""
    folder = tmp_path / "volumes"
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows = ["file,label"]
    for number in range(40):
        values = rng.normal(size=(9, 10, 12)).astype(np.float32)
        values[: 3 + 3 * (number % 2)] += 2
        nibabel.Nifti1Image(values, np.eye(4)).to_filename(folder / f"{number}.nii.gz")
        rows.append(f"{number}.nii.gz,{('ill', 'well')[number % 2]}")
    (folder / "labels.csv").write_text("\n".join(rows))
    (tmp_path / "codebook.toml").write_text(CODEBOOK)
    return folder


def test_the_lab_chooses_a_3d_network_for_volumes(volumes: Path, tmp_path: Path) -> None:
    changes: Values = {"codebook": str(tmp_path / "codebook.toml")}
    found = own_data(f"medical-folder:{volumes}", 3, 5, changes)
    for preset in (found.laptop, found.full):
        assert preset.settings["model"] == "cnn-3d"
        assert "image-size" not in preset.settings


def test_a_codebook_beside_settings_that_it_overrules_is_refused(
    volumes: Path, tmp_path: Path
) -> None:
    given = {"dataset": "medical-folder", "data-dir": str(volumes), "image-size": 16}
    given["codebook"] = str(tmp_path / "codebook.toml")
    with pytest.raises(DataError, match="image-size and image-mode have no effect beside"):
        load_dataset(LocalSettings.parse(given, source="test"), 0)
    given |= {"dataset": "digits", "image-size": 0}
    with pytest.raises(DataError, match="codebook has no effect on dataset = digits"):
        load_dataset(LocalSettings.parse(given, source="test"), 0)
    (tmp_path / "codebook.toml").write_text("classes = 3")
    given["dataset"] = "medical-folder"
    with pytest.raises(DataError, match=r"codebook\.toml: .*classes"):
        load_dataset(LocalSettings.parse(given, source="test"), 0)


def test_both_engines_train_the_same_3d_network(volumes: Path, tmp_path: Path) -> None:
    settings = Settings.from_run_config(
        TINY
        | {
            "sealed": False,
            "held-out": 0,
            "dataset": "medical-folder",
            "data-dir": str(volumes),
            "codebook": str(tmp_path / "codebook.toml"),
            "model": "cnn-3d",
            "model-options": '{"filters": [2, 3]}',
            "hospitals": 3,
            "examples": 5,
            "batch-size": 3,
            "rounds": 4,
            "aggregation-period": 2,
        },
        source="test",
    )
    simulate_in_process(settings, tmp_path / "flower")
    expected = load_file(tmp_path / "flower" / "model.safetensors")
    outcome = run(settings, backend="auto", workers=2)
    got = outcome.model.parameters | outcome.model.buffers
    assert set(got) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-9, atol=1e-11)
