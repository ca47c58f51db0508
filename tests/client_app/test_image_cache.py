"""Decoded images in the state folder: the agent's user can read them, and only that user."""

import os
from pathlib import Path

import numpy as np
import pytest

from client_app.configuration import Configuration
from client_app.hospital_data import load_partition
from learning.data.medical import decoding
from protocol.codebook import Codebook
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled
from tests.learning.data.medical.made_images import dicom_image, save

PATIENTS = 60
AGENT, GROUP = 54_321, 54_322


def codebook(size: int) -> Codebook:
    text = 'classes = ["ill", "well"]\n[images]\nview = "slice"\nsize = [{0}, {0}]\n'
    return Codebook.from_toml(text.format(size))


@pytest.fixture
def hospital(enrolled: Enrolled) -> Enrolled:
    """A hospital with an X-ray of each patient, and a pinned codebook."""
    root = enrolled.folder.path / "data"
    rows = ["PatientID,label"]
    for number in range(PATIENTS):
        pixels = np.full((4, 4), 4 * number, np.uint8)
        save(dicom_image(pixels, PatientID=f"P{number:03}"), root / f"{number:04}")
        rows.append(f"P{number:03},{'ill' if number % 2 else 'well'}")
    (root / "records.csv").unlink()
    (root / "labels.csv").write_text("\n".join(rows) + "\n")
    enrolled.set("dataset", '"medical-folder"')
    enrolled.set("data-dir", f'"{root}"')
    enrolled.set("classes", "[]")
    enrolled.folder.pin_codebook(codebook(4).signed(enrolled.coordinator))
    return enrolled


def check(hospital: Enrolled) -> tuple[int, str]:
    done = feddc("check", "--folder", hospital.folder.path)
    return done.exit_code, done.stdout


def test_an_agent_whose_images_are_cached_may_start_again(hospital: Enrolled) -> None:
    cache = hospital.folder.image_cache
    for _ in range(2):
        code, text = check(hospital)
        assert (code, "✗" in text) == (0, False), text
        assert len([path for path in cache.rglob("*") if path.is_file()]) >= PATIENTS
    cache.chmod(0o755)
    assert f"✗ images: {cache}" in " ".join(check(hospital)[1].split())


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as root and as another user")
def test_what_check_creates_as_root_belongs_to_the_agents_user(hospital: Enrolled) -> None:
    """Else the agent could read neither who is held out nor the cached images."""
    folder = hospital.folder
    folder.held_out_file.unlink()
    for path in (folder.state, *folder.state.iterdir()):
        os.chown(path, AGENT, GROUP)

    check(hospital)

    made: list[Path] = [folder.held_out_file, folder.image_cache, *folder.image_cache.rglob("*")]
    assert len(made) > PATIENTS
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(AGENT, GROUP)}


def test_an_older_models_codebook_displaces_no_cached_image(
    hospital: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`evaluate` reads the data by the codebook of the model."""
    configuration = Configuration.read(hospital.folder.configuration)
    trained_on = load_partition(hospital.folder, configuration, codebook(4))
    older = load_partition(hospital.folder, configuration, codebook(2))
    assert older.train.features.shape[1:] == (1, 2, 2)

    def decode(*_: object) -> None:
        pytest.fail("an image was decoded again")

    monkeypatch.setattr(decoding, "decode_item", decode)
    again = load_partition(hospital.folder, configuration, codebook(4))
    np.testing.assert_array_equal(again.train.features, trained_on.train.features)
