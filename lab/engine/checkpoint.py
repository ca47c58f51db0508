"""Checkpoints of a run: one safetensors file with the other state as JSON in its metadata."""

import hashlib
import json
import time
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from operation import files
from operation.config import SettingsError
from protocol.model_bytes import Arrays, ModelState
from server_app.config.run_config import Settings

from .outcome import History
from .run_state import RunState

_SECONDS_BETWEEN = 60.0
_FORMAT = "feddc-lab-5"
# Settings that change where a run computes or writes, but not its result.
_IRRELEVANT = ("run-dir", "device", "threads", "leg-timeout", "start-timeout", "sealed")


class Checkpoints:
    """Saves the latest state of a run in one file; does nothing without a path."""

    def __init__(self, path: Path | None, settings: Settings) -> None:
        self._path = path
        config = {k: v for k, v in settings.as_config().items() if k not in _IRRELEVANT}
        self._run = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
        self._kept = time.monotonic()

    def keep(self, run: RunState, legs: int, *, now: bool) -> None:
        """Save the state after `legs` legs, at most once a minute unless `now`."""
        if self._path is None or not (now or time.monotonic() - self._kept > _SECONDS_BETWEEN):
            return
        numbers, model, arrays = run.aggregation.wrapped.to_state()
        tensors = {f"stack/{name}": tensor for name, tensor in run.stack.tensors().items()}
        tensors |= {f"training/{name}": tensor for name, tensor in run.training.state.items()}
        for number, anchor in run.anchors.aggregates.items():
            tensors |= {f"anchor/{number}/{name}": tensor for name, tensor in anchor.items()}
        for part, named in (
            ("parameter", model.parameters),
            ("buffer", model.buffers),
            ("strategy", arrays),
        ):
            tensors |= {f"{part}/{name}": _tensor(array) for name, array in named.items()}
        state = {
            "format": _FORMAT,
            "run": self._run,
            "legs": legs,
            "routes": run.routes.to_state(),
            "anchors": run.anchors.number_of.tolist(),
            "wrapped": numbers,
            "history": run.history.to_state(),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        copies = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with files.replacing(self._path, durable=False) as draft:
            save_file(copies, draft, metadata={"state": json.dumps(state)})
        self._kept = time.monotonic()

    def load(self, run: RunState) -> int:
        """Restore the saved state into `run`; return the number of finished legs."""
        if self._path is None or not self._path.exists():
            return 0
        try:
            with safe_open(self._path, framework="pt") as file:
                state = json.loads((file.metadata() or {}).get("state", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise SettingsError(
                f"{self._path} is not a readable checkpoint ({error}): delete it"
            ) from error
        if state.get("format") != _FORMAT or state.get("run") != self._run:
            raise SettingsError(
                f"{self._path} is the checkpoint of another run: delete it or choose another file"
            )
        for name, tensor in run.stack.tensors().items():
            tensor.copy_(tensors[f"stack/{name}"])
        for name, tensor in run.training.state.items():
            tensor.copy_(tensors[f"training/{name}"])
        device = next(iter(run.stack.parameters.values())).device
        for number in set(state["anchors"]) - {-1}:
            run.anchors.aggregates[number] = {
                name: tensor.to(device)
                for name, tensor in _part(tensors, f"anchor/{number}/").items()
            }
        run.anchors.number_of[:] = state["anchors"]
        run.routes.restore(state["routes"])
        run.history = History.from_state(state["history"])
        model = ModelState(_arrays(tensors, "parameter/"), _arrays(tensors, "buffer/"))
        run.aggregation.wrapped.restore(state["wrapped"], model, _arrays(tensors, "strategy/"))
        run.aggregation.one_by_one &= run.history.aggregations == 0
        legs: int = state["legs"]
        return legs


def _tensor(array: object) -> Tensor:
    return torch.as_tensor(array)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _arrays(tensors: dict[str, Tensor], prefix: str) -> Arrays:
    return {name: tensor.numpy() for name, tensor in _part(tensors, prefix).items()}
