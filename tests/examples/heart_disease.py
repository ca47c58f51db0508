"""UCI Heart Disease as the example of a codebook reads it: four hospitals, one split per seed."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learning.data import DataOptions, Dataset, Examples
from learning.data.partition.groups import set_apart, unite
from learning.data.tables.local_columns import LocalColumn
from learning.data.tables.rows import Rows, read_rows
from protocol.codebook import Codebook
from server_app.config.run_config import Settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "heart-disease"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
HEADER = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
# FedDC(1, 10) with a linear model, on full batches.
METHOD: Mapping[str, Any] = {
    "model": "linear", "rounds": 200, "daisy-period": 1, "aggregation-period": 10,
    "learning-rate": 0.1,
}  # fmt: skip


@dataclass(frozen=True)
class HeartDisease:
    """The publisher's files in `root`; tables with a header are written to `folder`."""

    root: Path
    folder: Path

    def lines(self, hospital: str) -> list[str]:
        return (self.root / f"processed.{hospital}.data").read_text().split()

    def rows(self) -> dict[str, Rows]:
        """Read each hospital's table by the example's codebook and columns."""
        codebook = Codebook.from_toml((EXAMPLE / "codebook.toml").read_text(encoding="utf-8"))
        local = tomllib.loads((EXAMPLE / "columns.toml").read_text(encoding="utf-8"))
        columns = {
            name: LocalColumn.parse(entry, source="columns.toml")
            for name, entry in local["data"]["columns"].items()
        }
        for name in HOSPITALS:
            (self.folder / f"{name}.csv").write_text("\n".join([HEADER, *self.lines(name)]))
        tables = {name: self.folder / f"{name}.csv" for name in HOSPITALS}
        return {name: read_rows(path, codebook, columns) for name, path in tables.items()}

    def split(self, seed: int, fraction: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return who is trained on and who is in the test set; the same as with pooled scaling."""
        whose = [f"{name}: {line}" for name in HOSPITALS for line in self.lines(name)]
        return set_apart(len(whose), unite(whose), fraction, seed)

    def by_codebook(self, _: Path | None, seed: int, options: DataOptions) -> Dataset:
        """Load the data set as the registry does, with the codebook's scales."""
        rows = list(self.rows().values())
        groups = unite([f"{n}: {line}" for n in HOSPITALS for line in self.lines(n)])
        everyone = Examples(
            np.concatenate([read.examples.features for read in rows]),
            np.concatenate([read.examples.labels for read in rows]),
            groups,
            np.repeat(HOSPITALS, [len(read.examples) for read in rows]),
        )
        pool, test = self.split(seed, options.test_fraction)
        return Dataset("codebook", everyone.take(pool), everyone.take(test), ("no", "yes"))

    def in_test(self, seed: int, fraction: float) -> dict[str, list[bool]]:
        """Return, for each line of each hospital's file, whether it is in the test set."""
        _, test = self.split(seed, fraction)
        sizes = [len(self.lines(name)) for name in HOSPITALS]
        flags = np.isin(np.arange(sum(sizes)), test)
        parts = np.split(flags, np.cumsum(sizes)[:-1])
        return {name: part.tolist() for name, part in zip(HOSPITALS, parts, strict=True)}

    def settings(self, dataset: str, seed: int, **changes: Any) -> Settings:
        """Return the settings of a simulation on one split."""
        data = {
            "dataset": dataset, "data-dir": str(self.root), "split": "natural", "hospitals": 4,
            "held-out": 0, "seed": seed,
        }  # fmt: skip
        return Settings.from_run_config({**METHOD, **data, **changes}, source="test")
