"""The example's codebook: four real hospitals train as well as with pooled scaling, no worse."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lab.engine.run import run
from learning.data import DataOptions, Dataset, Examples, registry
from learning.data.scale import standardise
from tests.examples.heart_disease import HOSPITALS, HeartDisease
from tests.learning.data.conftest import real_data  # noqa: F401 (a fixture)

SPLITS = 10


@pytest.fixture
def hearts(
    real_data: Callable[[str], Path],  # noqa: F811
    tmp_path: Path,
) -> HeartDisease:
    return HeartDisease(real_data("heart_disease"), tmp_path)


def test_the_example_reads_all_rows_of_the_four_hospitals(hearts: HeartDisease) -> None:
    rows = hearts.rows()
    assert {name: len(read.examples) for name, read in rows.items()} == {
        "cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200,
    }  # fmt: skip
    ill = {name: read.examples.labels.mean() for name, read in rows.items()}
    assert [round(100 * share) for share in ill.values()] == [46, 36, 93, 74]
    for read in rows.values():
        assert not any(count.unknown or count.clipped for count in read.counts.values())
        assert read.unused == ("slope", "ca", "thal")
    assert rows["switzerland"].counts["chol"].missing == 123  # 0, and impossible


@pytest.mark.slow
def test_a_codebook_costs_nothing_and_own_scaling_costs_points(
    hearts: HeartDisease, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_own_scale(_: Path | None, seed: int, options: DataOptions) -> Dataset:
        pooled = registry.load("heart-disease", folder=hearts.root, seed=seed, options=options)
        train, test = pooled.train, pooled.test
        assert train.hospitals is not None
        assert test.hospitals is not None
        both = np.concatenate([train.features, test.features]).astype(np.float64)
        whose = np.concatenate([train.hospitals, test.hospitals])
        scaled = np.zeros_like(both, dtype=np.float32)
        for name in HOSPITALS:
            own = np.flatnonzero(whose == name)
            scaled[own] = standardise(both[own], np.flatnonzero(own < len(train)))
        at = len(train)
        return Dataset(
            "own",
            Examples(scaled[:at], train.labels, train.groups, train.hospitals),
            Examples(scaled[at:], test.labels, test.groups, test.hospitals),
            pooled.classes,
        )

    monkeypatch.setitem(registry._BUILT_IN, "by-codebook", hearts.by_codebook)
    monkeypatch.setitem(registry._BUILT_IN, "by-own-scale", by_own_scale)
    names = ("heart-disease", "by-codebook", "by-own-scale")
    pooled, codebook, own = (_accuracy(hearts, name) for name in names)
    # The same patients in every split; the mean of ten has a standard error below a point.
    assert codebook >= pooled - 0.01
    assert own <= pooled - 0.03


def _accuracy(hearts: HeartDisease, dataset: str) -> float:
    """Return the mean test accuracy over the splits."""
    found = []
    for seed in range(SPLITS):
        settings = hearts.settings(dataset, seed)
        outcome = run(settings, evaluate_every=1000, evaluate_clients=False)
        found.append(outcome.history.evaluations[-1].metrics.accuracy)
    return float(np.mean(found))
