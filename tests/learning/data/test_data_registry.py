"""Data sets are found by name, plug-ins included; what is missing is said with its remedy."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from learning.data import DataOptions, Dataset, Examples, default_folder, load, names

Refusal = Callable[[Callable[[], object]], str]

PLUG_IN = """
import numpy as np
from learning.data import Dataset, Examples

def dataset(folder, seed, options):
    examples = Examples(np.full((options.train_examples, 2), seed, np.float32),
                        np.zeros(options.train_examples, np.int64))
    return Dataset(str(folder), examples, examples, ("only",))

def wrong(folder, seed, options):
    return []
"""


def read(name: str, folder: Path | None = None) -> Dataset:
    return load(name, folder=folder, seed=3, options=DataOptions(train_examples=7))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that installs a package with one entry point, as pip leaves it."""

    def run(entry: str) -> None:
        (tmp_path / "our_plug_in.py").write_text(PLUG_IN)
        info = tmp_path / "our_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[feddc.datasets]\n{entry}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return run


def test_built_in_names_are_sorted() -> None:
    expected = {
        "brain-mri", "breast-cancer", "chest-xray", "cifar10", "csv", "digits", "heart-disease",
        "image-folder", "mnist", "susy", "susy-stand-in", "synthetic",
    }  # fmt: skip
    assert expected <= set(names())
    assert list(names()) == sorted(names())


def test_an_installed_package_adds_a_data_set(install: Callable[[str], None]) -> None:
    assert "skin-lesions" not in names()
    install("skin-lesions = our_plug_in:dataset")
    assert "skin-lesions" in names()
    dataset = read("skin-lesions", Path("somewhere"))
    assert dataset.name == "somewhere"
    assert dataset.train.features.tolist() == [[3, 3]] * 7


def test_a_plug_in_that_cannot_be_imported_is_named(
    install: Callable[[str], None], refusal: Refusal
) -> None:
    install("skin-lesions = our_plug_in:nothing")
    message = refusal(lambda: read("skin-lesions"))
    assert "the entry point our_plug_in:nothing of package our-package cannot be" in message


def test_a_plug_in_must_return_a_data_set(install: Callable[[str], None], refusal: Refusal) -> None:
    install("skin-lesions = our_plug_in:wrong")
    message = refusal(lambda: read("skin-lesions"))
    assert "must return a learning.data.Dataset, got list" in message


def test_a_plug_in_cannot_take_a_built_in_name(
    install: Callable[[str], None], refusal: Refusal
) -> None:
    install("mnist = our_plug_in:dataset")
    message = refusal(lambda: read("mnist"))
    assert "data set 'mnist' is built in, but the entry point our_plug_in:dataset" in message


def test_an_unknown_name_is_answered_with_the_known_ones(refusal: Refusal) -> None:
    message = refusal(lambda: read("imagenet"))
    assert message == f"unknown data set 'imagenet': dataset must be one of {', '.join(names())}"


@pytest.mark.parametrize(
    ("name", "folder", "publisher"),
    [
        ("brain-mri", "brain_mri", "Kaggle: navoneel/brain-mri-images-for-brain-tumor-detection"),
        ("chest-xray", "chest_xray", "Kaggle: paultimothymooney/chest-xray-pneumonia"),
        ("cifar10", "cifar10", "the University of Toronto"),
        ("heart-disease", "heart_disease", "the UCI repository, Heart Disease"),
        ("mnist", "mnist", "the MNIST database"),
        ("susy", "susy", "the UCI repository, SUSY"),
    ],
)
def test_without_a_folder_the_settings_and_the_publisher_are_named(
    name: str, folder: str, publisher: str, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = refusal(lambda: read(name))
    assert "set data-dir in the run config" in message
    assert f"or FEDDC_DATA to the folder above {folder}/" in message
    assert publisher in message
    monkeypatch.setenv("FEDDC_DATA", "somewhere")
    assert default_folder(name) == Path("somewhere") / folder
    monkeypatch.delenv("FEDDC_DATA")
    assert default_folder(name) is None


@pytest.mark.parametrize("name", ["csv", "image-folder"])
def test_a_users_own_data_have_no_default_folder(
    name: str, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDDC_DATA", "somewhere")
    assert default_folder(name) is None
    message = refusal(lambda: read(name))
    assert "set data-dir in the run config" in message
    assert "FEDDC_DATA" not in message


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, refusal: Refusal) -> None:
    gone = tmp_path / "gone"
    for name in ("mnist", "cifar10", "heart-disease", "brain-mri", "image-folder"):
        message = refusal(lambda name=name: read(name, gone))  # type: ignore[misc]
        assert f"{gone}: no such folder for data set {name!r}" in message


def test_importing_is_cheap() -> None:
    heavy = ["PIL", "sklearn", "torch", "torchvision", "scipy", "pandas"]
    code = f"import sys, learning.data; sys.exit(str([m for m in {heavy} if m in sys.modules]))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.strip() == "[]"


def examples(labels: list[int], groups: list[int] | None = None, width: int = 2) -> Examples:
    return Examples(
        np.zeros((len(labels), width), np.float32),
        np.array(labels),
        None if groups is None else np.array(groups),
    )


def test_a_data_set_that_contradicts_itself_is_refused(refusal: Refusal) -> None:
    good = examples([0, 1], [1, 2])
    message = refusal(lambda: Dataset("d", good, examples([2]), ("a", "b")))
    assert "data set 'd': labels must be 0 … 1" in message
    message = refusal(lambda: Dataset("d", good, examples([0], width=3), ("a", "b")))
    assert "must have the same shape, got (2,) and (3,)" in message
    message = refusal(lambda: Dataset("d", good, examples([0], [2]), ("a", "b")))
    assert "a group is in both train and test" in message
    message = refusal(lambda: examples([0, 1], [1]))
    assert "groups must be one value for each of the 2 examples" in message
