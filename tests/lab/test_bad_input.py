"""Whatever a user gets wrong, settings or files, is one line that names it, and exit code 2."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from operation.cli import main

SETTINGS = {
    "no rounds": ("--rounds 0", "rounds"),
    "a fraction above one": ("--fraction 2", "fraction"),
    "an unknown aggregator": ("--aggregator best", "aggregator"),
    "an unknown permutation": ("--permutation ring", "permutation"),
    "an unknown data set": ("--dataset nothing", "nothing"),
    "an unknown model": ("--model nothing", "nothing"),
    "a learning rate below zero": ("--learning-rate -1", "learning-rate"),
    "a learning rate that is no number": ("--set learning-rate=nan", "learning-rate"),
    "options that are no JSON": ("--set model-options={", "model-options"),
    "an unknown option of a model": ('--set model-options={"deep":1}', "deep"),
    "a loss for another model": ("--set loss=hinge", "hinge"),
    "momentum for Adam": ("--set optimizer=adam --set momentum=0.9", "momentum"),
    "weights that nobody uses": ("--aggregator median --set weighting=examples", "weighting"),
    "fairness for chains": ("--aggregator qfedavg", "qfedavg"),
    "a Radon point of a large model": ("--aggregator radon", "radon"),
    "too many malicious hospitals": ("--aggregator bulyan --set krum-malicious=9", "malicious"),
    "a random schedule without periods": ("--set schedule=random --daisy-period 0", "schedule"),
    "more examples than there are": ("--examples 10000", "examples"),
    "one hospital": ("--hospitals 1", "hospitals"),
    "another size for images of one size": ("--set image-size=32", "image-size"),
    "silos of a data set without": ("--set split=natural", "split"),
    "numbers too narrow": ("--set precision=float64 --set wire-dtype=float16", "wire-dtype"),
}

if not torch.cuda.is_available():
    SETTINGS["a device that is not there"] = ("--set device=cuda", "cuda")


def _nothing(folder: Path) -> Path:
    return folder / "nowhere"


def _text_in_a_csv(folder: Path) -> Path:
    return _written(folder / "a.csv", "age,label\n61,yes\nold,no\n")


def _csv_without_labels(folder: Path) -> Path:
    return _written(folder / "a.csv", "age,sex\n61,1\n62,0\n")


def _empty_csv(folder: Path) -> Path:
    return _written(folder / "a.csv", "")


def _broken_image(folder: Path) -> Path:
    for name in ("ill", "well"):
        (folder / "images" / name).mkdir(parents=True)
        _written(folder / "images" / name / "scan.png", "this is no picture")
    return folder / "images"


def _no_images(folder: Path) -> Path:
    (folder / "images" / "ill").mkdir(parents=True)
    return folder / "images"


def _cut_off_mnist(folder: Path) -> Path:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
            with gzip.open(raw / f"{part}-{kind}.gz", "wb") as file:
                file.write(b"\0\0\x08\x03\0\0")
    return folder


def _one_heart_file(folder: Path) -> Path:
    _written(folder / "processed.cleveland.data", "63.0,1.0\n")
    return folder


FILES: dict[str, tuple[str, Callable[[Path], Path], str]] = {
    "no csv there": ("csv", _nothing, "nowhere"),
    "text in a csv": ("csv", _text_in_a_csv, "a.csv"),
    "a csv without labels": ("csv", _csv_without_labels, "label"),
    "an empty csv": ("csv", _empty_csv, "a.csv"),
    "a broken image": ("image-folder", _broken_image, "scan.png"),
    "a folder without images": ("image-folder", _no_images, "images"),
    "no images there": ("image-folder", _nothing, "nowhere"),
    "MNIST, cut off": ("mnist", _cut_off_mnist, "idx"),
    "no MNIST there": ("mnist", _nothing, "nowhere"),
    "no CIFAR10 there": ("cifar10", _nothing, "nowhere"),
    "one heart file of four": ("heart-disease", _one_heart_file, "processed."),
}


@pytest.mark.parametrize(("options", "named"), SETTINGS.values(), ids=SETTINGS)
def test_a_wrong_setting_is_one_line_that_names_it(
    options: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _assert_refused(options.split(), named, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(("dataset", "make", "named"), FILES.values(), ids=FILES)
def test_a_wrong_file_is_one_line_that_names_it(
    dataset: str,
    make: Callable[[Path], Path],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--dataset", dataset, "--data-dir", str(make(tmp_path)), "--examples", "2"]
    _assert_refused([*options, "--hospitals", "2"], named, tmp_path, monkeypatch, capsys)


def test_results_of_another_run_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _written(tmp_path / "summary.json", "{}")
    options = ["--run-dir", str(tmp_path)]
    _assert_refused(options, "already holds a run", tmp_path, monkeypatch, capsys)


def _assert_refused(
    options: list[str],
    named: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["feddc", "simulate", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.startswith("feddc: ")
    assert err.count("\n") == 1
    assert named in err
    assert not (folder / "runs").exists()


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
