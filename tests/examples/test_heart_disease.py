"""The example's codebook: four real hospitals train as well as with pooled scaling, no worse."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lab.engine.run import run
from learning.data import DataOptions, Dataset, Examples, registry
from learning.data.partition.groups import set_apart, unite
from learning.data.scale import standardise
from learning.data.tables.local_columns import LocalColumn
from learning.data.tables.rows import Rows, read_rows
from protocol.codebook import Codebook
from server_app.config.run_config import Settings
from tests.learning.data.conftest import real_data  # noqa: F401 (a fixture)

EXAMPLE = Path(__file__).parents[2] / "examples" / "heart-disease"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
HEADER = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
SPLITS = 10


def test_the_example_reads_all_rows_of_the_four_hospitals(
    real_data: Callable[[str], Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    rows = _rows(real_data("heart_disease"), tmp_path)
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
    real_data: Callable[[str], Path],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = real_data("heart_disease")
    rows = list(_rows(root, tmp_path).values())
    features = np.concatenate([read.examples.features for read in rows])

    def by_codebook(_: Path | None, seed: int, options: DataOptions) -> Dataset:
        labels = np.concatenate([read.examples.labels for read in rows])
        groups = unite([f"{n}: {x}" for n in HOSPITALS for x in _text(root, n).split()])
        names = np.repeat(HOSPITALS, [len(read.examples) for read in rows])
        pool, test = set_apart(len(labels), groups, options.test_fraction, seed)
        everyone = Examples(features, labels, groups, names)
        return Dataset("codebook", everyone.take(pool), everyone.take(test), ("no", "yes"))

    def by_own_scale(_: Path | None, seed: int, options: DataOptions) -> Dataset:
        pooled = registry.load("heart-disease", folder=root, seed=seed, options=options)
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

    monkeypatch.setitem(registry._BUILT_IN, "by-codebook", by_codebook)
    monkeypatch.setitem(registry._BUILT_IN, "by-own-scale", by_own_scale)
    names = ("heart-disease", "by-codebook", "by-own-scale")
    pooled, codebook, own = (_accuracy(root, name) for name in names)
    # The same patients in every split; the mean of ten has a standard error below a point.
    assert codebook >= pooled - 0.01
    assert own <= pooled - 0.03


def _rows(root: Path, folder: Path) -> dict[str, Rows]:
    codebook = Codebook.from_toml((EXAMPLE / "codebook.toml").read_text(encoding="utf-8"))
    local = tomllib.loads((EXAMPLE / "columns.toml").read_text(encoding="utf-8"))
    columns = {
        name: LocalColumn.parse(entry, source="columns.toml")
        for name, entry in local["data"]["columns"].items()
    }
    for name in HOSPITALS:
        (folder / f"{name}.csv").write_text(f"{HEADER}\n{_text(root, name)}")
    return {name: read_rows(folder / f"{name}.csv", codebook, columns) for name in HOSPITALS}


def _text(root: Path, name: str) -> str:
    return (root / f"processed.{name}.data").read_text()


def _accuracy(root: Path, dataset: str) -> float:
    """Return the mean test accuracy of FedDC(1, 10) with a linear model."""
    found = []
    for seed in range(SPLITS):
        settings = Settings.from_run_config(
            {
                "dataset": dataset, "data-dir": str(root), "split": "natural", "hospitals": 4,
                "held-out": 0, "model": "linear", "rounds": 200, "daisy-period": 1,
                "aggregation-period": 10, "learning-rate": 0.1, "seed": seed,
            },
            source="test",
        )  # fmt: skip
        outcome = run(settings, evaluate_every=1000, evaluate_clients=False)
        found.append(outcome.history.evaluations[-1].metrics.accuracy)
    return float(np.mean(found))
