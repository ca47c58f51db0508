"""Checkpoints of training on pooled data: one safetensors file, like the engine's."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lab.sweep.record import Point, TrainingPoint
from learning.metrics import Metrics
from learning.trainer import Arrays, Network, Progress
from operation import files
from operation.config import SettingsError

_SECONDS_BETWEEN = 60.0
_FORMAT = "feddc-central-2"


@dataclass
class CentralState:
    """Progress: optimiser state, evaluations so far, and steps since the last evaluation."""

    optimizer: Arrays
    done: int = 0
    curve: list[Point] = field(default_factory=list)
    accuracies: list[TrainingPoint] = field(default_factory=list)
    steps_since: int = 0
    hits_since: float = 0.0

    def add(self, steps: int, progress: Progress) -> None:
        """Record training steps."""
        self.done += steps
        self.steps_since += steps
        self.hits_since += steps * progress.accuracy

    def evaluated(self, round_: int, metrics: Metrics, held_out: Metrics | None) -> None:
        """Record metrics on test and held-out data, and the batch accuracy since the last time."""
        self.curve.append(
            (
                round_,
                0,
                0,
                metrics.accuracy,
                metrics.balanced_accuracy,
                held_out.accuracy if held_out else None,
                held_out.balanced_accuracy if held_out else None,
            )
        )
        accuracy = self.hits_since / self.steps_since
        self.accuracies.append((round_, accuracy, accuracy, accuracy))
        self.steps_since, self.hits_since = 0, 0.0


class CentralCheckpoints:
    """Saves the latest state in one file; does nothing without a path."""

    def __init__(self, path: Path | None, trial: str) -> None:
        self._path, self._trial = path, trial
        self._kept = time.monotonic()

    def keep(self, network: Network, state: CentralState, *, now: bool) -> None:
        """Save the state, at most once a minute unless `now`."""
        if self._path is None or not (now or time.monotonic() - self._kept > _SECONDS_BETWEEN):
            return
        parameters, buffers = network.arrays()
        parts = {"parameter": parameters, "buffer": buffers, "optimizer": state.optimizer}
        tensors = {
            f"{part}/{name}": torch.as_tensor(array).contiguous()
            for part, arrays in parts.items()
            for name, array in arrays.items()
        }
        saved = {
            "format": _FORMAT,
            "trial": self._trial,
            "done": state.done,
            "curve": state.curve,
            "accuracies": state.accuracies,
            "steps_since": state.steps_since,
            "hits_since": state.hits_since,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(self._path, durable=False) as draft:
            save_file(tensors, draft, metadata={"state": json.dumps(saved)})
        self._kept = time.monotonic()

    def load(self, network: Network) -> CentralState | None:
        """Load the saved state into the network and return the rest; None if there is no file."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with safe_open(self._path, framework="pt") as file:
                saved = json.loads((file.metadata() or {}).get("state", "{}"))
                arrays = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise SettingsError(
                f"{self._path} is not a readable checkpoint ({error}): delete it"
            ) from error
        if saved.get("format") != _FORMAT or saved.get("trial") != self._trial:
            raise SettingsError(f"{self._path} is the checkpoint of another training: delete it")
        network.load(_part(arrays, "parameter/"), _part(arrays, "buffer/"))
        return CentralState(
            _part(arrays, "optimizer/"),
            saved["done"],
            [tuple(point) for point in saved["curve"]],
            [tuple(point) for point in saved["accuracies"]],
            saved["steps_since"],
            saved["hits_since"],
        )


def _part(arrays: Arrays, prefix: str) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
