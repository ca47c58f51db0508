"""A run's state on disk: one safetensors file, with everything that is no tensor as JSON in it."""

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
from .run_state import Bench

_SECONDS_BETWEEN = 60.0
_FORMAT = "feddc-bench-2"
# They change where a run computes or writes, and nothing of what.
_IRRELEVANT = ("run-dir", "device", "threads", "leg-timeout", "start-timeout", "sealing")


class Checkpoints:
    """Keeps a run's latest state in one file, or nowhere if there is no path."""

    def __init__(self, path: Path | None, settings: Settings) -> None:
        self._path = path
        config = {k: v for k, v in settings.as_config().items() if k not in _IRRELEVANT}
        self._run = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
        self._kept = time.monotonic()

    def keep(self, bench: Bench, legs: int, *, now: bool) -> None:
        """Write the state after so many legs, once a minute or `now`."""
        if self._path is None or not (now or time.monotonic() - self._kept > _SECONDS_BETWEEN):
            return
        numbers, model, arrays = bench.aggregation.wrapped.to_state()
        tensors = {f"stack/{name}": tensor for name, tensor in bench.stack.tensors().items()}
        for number, anchor in bench.anchors.aggregates.items():
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
            "routes": bench.routes.to_state(),
            "anchors": bench.anchors.number_of.tolist(),
            "wrapped": numbers,
            "history": bench.history.to_state(),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        copies = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        with files.replacing(self._path, durable=False) as draft:
            save_file(copies, draft, metadata={"state": json.dumps(state)})
        self._kept = time.monotonic()

    def load(self, bench: Bench) -> int:
        """Bring the bench to the state on disk; return how many legs are done."""
        if self._path is None or not self._path.exists():
            return 0
        try:
            with safe_open(self._path, framework="pt") as file:
                state = json.loads((file.metadata() or {}).get("state", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise SettingsError(f"{self._path} is no checkpoint: {error}") from error
        if state.get("format") != _FORMAT or state.get("run") != self._run:
            raise SettingsError(
                f"{self._path} is the checkpoint of another run: choose another file, or delete it"
            )
        for name, tensor in bench.stack.tensors().items():
            tensor.copy_(tensors[f"stack/{name}"])
        device = next(iter(bench.stack.parameters.values())).device
        for number in set(state["anchors"]) - {-1}:
            bench.anchors.aggregates[number] = {
                name: tensor.to(device)
                for name, tensor in _part(tensors, f"anchor/{number}/").items()
            }
        bench.anchors.number_of[:] = state["anchors"]
        bench.routes.restore(state["routes"])
        bench.history = History.from_state(state["history"])
        model = ModelState(_arrays(tensors, "parameter/"), _arrays(tensors, "buffer/"))
        bench.aggregation.wrapped.restore(state["wrapped"], model, _arrays(tensors, "strategy/"))
        bench.aggregation.one_by_one &= bench.history.aggregations == 0
        legs: int = state["legs"]
        return legs


def _tensor(array: object) -> Tensor:
    return torch.as_tensor(array)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _arrays(tensors: dict[str, Tensor], prefix: str) -> Arrays:
    return {name: tensor.numpy() for name, tensor in _part(tensors, prefix).items()}
