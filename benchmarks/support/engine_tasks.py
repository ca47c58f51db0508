"""The five tasks of `benchmarks.engine`, in the paper's sizes, on random data.

Speed does not depend on the values, so the benchmark needs no data files.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from operation.config import Scalar
from server_app.config.run_config import Settings


@dataclass(frozen=True)
class BenchmarkTask:
    """One row of the benchmark; `rounds` of the engine and of the loop take seconds.

    Ray has the same number of hospitals only with the MLP; elsewhere a few suffice to measure the
    cost of a message.
    """

    settings: Settings
    rounds: int
    loop_rounds: int
    ray_hospitals: int = 10
    ray_rounds: int = 12

    def on_engine(self) -> Settings:
        return self.settings.replace(rounds=self.rounds)

    def on_ray(self) -> Settings:
        return self.settings.replace(
            rounds=self.ray_rounds, hospitals=self.ray_hospitals, aggregation_period=4
        )


def task(name: str, folder: Path) -> BenchmarkTask:
    """Return a task and write its data to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    match name:
        case "linear":
            # SUSY: 441 clients with 2 examples of 18 features, a hinge loss, b = 50.
            values = _table(folder, rows=1200, columns=18) | {
                "hospitals": 441,
                "examples": 2,
                "model-options": '{"outputs": 1}',
                "loss": "hinge",
                "aggregation-period": 50,
            }
            return BenchmarkTask(_settings(name, values), rounds=3000, loop_rounds=2)
        case "mlp":
            # The synthetic data: 50 clients with 10 examples, Adam.
            values = _table(folder, rows=700, columns=100) | {
                "hospitals": 50,
                "examples": 10,
                "optimizer": "adam",
                "learning-rate": 0.001,
            }
            return BenchmarkTask(
                _settings(name, values), rounds=300, loop_rounds=3, ray_hospitals=50
            )
        case "mnist-cnn":
            values = _images(folder, classes=10, side=28, mode="grey", hospitals=50, examples=8)
            return BenchmarkTask(_settings(name, values), rounds=4, loop_rounds=1)
        case "mri-cnn":
            values = _images(folder, classes=2, side=150, mode="rgb", hospitals=6, examples=8)
        case _:
            values = _images(folder, classes=10, side=32, mode="rgb", hospitals=6, examples=64)
    settings = _settings(name, values)
    return BenchmarkTask(settings, rounds=6, loop_rounds=3, ray_hospitals=4, ray_rounds=4)


def stand_in(folder: Path, *, clients: int) -> Settings:
    """Return the task of an MLP for any number of clients with 8 examples each."""
    folder.mkdir(parents=True, exist_ok=True)
    values = _table(folder, rows=10 * clients + 50, columns=30)
    return _settings("mlp", values | {"hospitals": clients, "examples": 8})


def _settings(model: str, values: dict[str, Scalar]) -> Settings:
    common: dict[str, Scalar] = {
        "model": model,
        "held-out": 0,
        "daisy-period": 1,
        "aggregation-period": 10,
        "learning-rate": 0.01,
        "sealed": False,
    }
    return Settings.from_run_config(common | values, source=f"benchmarks.engine, {model}")


def _table(folder: Path, *, rows: int, columns: int) -> dict[str, Scalar]:
    path = folder / "table.csv"
    rng = np.random.default_rng(0)
    values = rng.normal(size=(rows, columns))
    labels = (values[:, 0] > 0).astype(int)
    lines = [",".join([*(f"x{column}" for column in range(columns)), "label"])]
    lines += [
        ",".join([*(f"{value:.5f}" for value in row), str(label)])
        for row, label in zip(values, labels, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"dataset": "csv", "data-dir": str(path)}


def _images(
    folder: Path, *, classes: int, side: int, mode: str, hospitals: int, examples: int
) -> dict[str, Scalar]:
    rng = np.random.default_rng(0)
    shape = (side, side) if mode == "grey" else (side, side, 3)
    for label in range(classes):
        (folder / str(label)).mkdir()
    for number in range(int(1.3 * hospitals * examples)):
        pixels = rng.integers(256, size=shape, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / str(number % classes) / f"{number}.png")
    return {
        "dataset": "image-folder",
        "data-dir": str(folder),
        "image-size": side,
        "image-mode": mode,
        "hospitals": hospitals,
        "examples": examples,
    }
