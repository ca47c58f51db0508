"""A comparison on data of one's own: what is judged, what `--set` changes, what it may not."""

from pathlib import Path

import pytest

from lab.experiments import ExperimentError
from lab.experiments.own_data import own_data
from lab.results.result import results
from lab.results.table import gain_lines
from lab.sweep import Record
from learning.metrics import Metrics
from operation.config import SettingsError
from tests.lab.conftest import plan


def table(path: Path, counts: dict[str, int]) -> Path:
    rows = [
        f"{number},{(number * 7) % 11},{label}"
        for label, count in counts.items()
        for number in range(count)
    ]
    path.write_text("\n".join(["a,b,label", *rows]))
    return path


@pytest.mark.parametrize(
    ("counts", "judged"),
    [
        ({"no": 50, "yes": 50}, "accuracy"),
        ({"no": 59, "yes": 41}, "accuracy"),  # up to 1.2 times the even share of one half
        ({"no": 61, "yes": 39}, "balanced-accuracy"),
        ({"a": 40, "b": 30, "c": 30}, "accuracy"),
        ({"a": 41, "b": 30, "c": 29}, "balanced-accuracy"),
    ],
)
def test_uneven_classes_are_judged_by_balanced_accuracy(
    counts: dict[str, int], judged: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "study.csv", counts)
    assert own_data(f"csv:{path}", 4, 6, {}).judged == judged


def test_what_is_set_is_what_is_trained() -> None:
    found = own_data(
        "breast-cancer", 4, 6, {"held-out": 1, "learning-rate": 0.5, "momentum": 0.9}
    ).laptop
    assert found is not None
    assert found.learning_rates == (0.5,)
    assert (found.settings["held-out"], found.settings["momentum"]) == (1, 0.9)
    assert "learning-rate" not in found.settings

    several = own_data("breast-cancer", 4, 6, {"learning-rate": "0.1, 0.5,0.1"}).laptop
    assert several is not None
    assert several.learning_rates == (0.1, 0.5)


def test_with_none_held_out_hospitals_hold_some_back_while_there_is_a_choice() -> None:
    several = own_data("breast-cancer", 4, 8, {"held-out": 0}).laptop
    assert several is not None
    assert several.settings["held-out"] == 0
    assert several.validation == {"examples": 6, "held-out": 2}
    one = own_data("breast-cancer", 4, 8, {"held-out": 0, "learning-rate": 0.1}).laptop
    assert one is not None
    assert (one.settings["held-out"], one.validation) == (0, {})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "seed",
            7,
            "seed can't be changed with --set: a comparison has several seeds: use --seeds",
        ),
        ("examples", 12, "use --examples"),
        ("hospitals", 12, "use --hospitals"),
        ("dataset", "digits", "use --dataset NAME:PATH"),
        ("data-dir", "/x", "use --dataset NAME:PATH"),
        ("run-dir", "/x", "use --run-dir"),
        ("aggregator", "median", "use --methods"),
        ("sealed", False, "sealed has no effect in a comparison: nothing is sent here"),
        ("trim-fraction", 0.1, "trim-fraction has no effect in a comparison"),
        ("aggregation-period", 0, "aggregation-period must be at least 1 in a comparison, got 0"),
        ("daisy-period", 0, "daisy-period must be at least 1 in a comparison, got 0"),
        ("round", 5, "did you mean rounds\\? docs/settings.md lists all"),
        ("zzz", 5, "zzz is not a setting: docs/settings.md lists all"),
        ("learning-rate", "fast", "learning-rate must be one or more comma-separated numbers"),
        ("learning-rate", -1, "learning-rate must be more than 0"),
        ("held-out", 4000, "lower hospitals, examples or held-out"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_reason(
    key: str, value: str | int, message: str
) -> None:
    with pytest.raises((ExperimentError, SettingsError, ValueError), match=message):
        own_data("breast-cancer", 4, 6, {key: value})


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("image-folder", "image-folder needs a path: --dataset image-folder:PATH"),
        ("csv", "csv needs a path: --dataset csv:PATH"),
        ("csv:/nowhere.csv", "--dataset csv:/nowhere.csv: there is no such file or folder"),
        ("image-folder:/nowhere", "--dataset image-folder:/nowhere: there is no such folder"),
        (f"image-folder:{__file__}", "this is a file, image-folder needs a folder"),
    ],
)
def test_a_place_that_is_not_there_is_named_as_it_was_given(dataset: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        own_data(dataset, 4, 6, {})


def test_who_always_says_the_larger_class_is_not_ahead() -> None:
    ours = plan(judged="balanced-accuracy", laptop={"learning-rates": [0.1], "seeds": 3})
    metrics = {"feddc": Metrics(0.6, 0.70, 0.50), "fedavg-b": Metrics(0.6, 0.65, 0.62)}
    records = {
        ours.final(cell, seed, 0.1).key: Record(
            "", cell.method.name, seed, 0.1, "done", test=metrics[cell.method.name]
        )
        for cell in ours.cells
        for seed in ours.seeds
        if cell.method.name in metrics
    }
    found = results(ours, records, 1.0)
    (gain,) = found["gains"]
    assert (gain["gain"]["mean"], gain["verdict"]) == (pytest.approx(5), "behind")
    assert gain_lines(found)[0].endswith("behind, by balanced accuracy (-12.0 points)")
