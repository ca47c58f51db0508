"""What several tests share: Hypothesis profiles, small settings, and a grid that records."""

import gc
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from hypothesis import settings
from safetensors.numpy import load_file

from client_app.courier import app as courier
from lab.flower.in_process import InProcessGrid
from learning.local_data import load_partitions
from protocol.message_bytes import decode_signed_reply, decode_signed_request
from protocol.messages import Reply, Request, TrainLeg
from protocol.records import from_records
from server_app.config.run_config import Settings
from server_app.run.simulated_run import run
from tests.skip_summary import (  # noqa: F401 (hooks, found by their names)
    pytest_deselected,
    pytest_sessionfinish,
    pytest_testnodedown,
    pytest_unconfigure,
)

# HYPOTHESIS_PROFILE chooses how many examples a property is tried with: `plain` is Hypothesis' own
# number, `more` and `thorough` are for the fuzz tests (see tests/fuzz.py) in `make test-slow` and
# `make test-long`. A busy machine must not fail a property that holds: no profile has a deadline.
settings.register_profile("plain", deadline=None)
settings.register_profile("more", deadline=None, max_examples=1_000)
settings.register_profile("thorough", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "plain"))


def pytest_collection_finish() -> None:
    """Take everything that is imported by now out of garbage collection.

    Krum, Bulyan and QFedAvg collect garbage for every model that they aggregate, and with torch,
    Flower and all tests in memory each collection takes a quarter of a second.
    """
    gc.collect()
    gc.freeze()


# Small enough for seconds, large enough that nothing cancels out by accident: six hospitals,
# mini-batches smaller than their data, float64 so that equal means equal.
TINY: dict[str, Any] = {
    "dataset": "breast-cancer",
    "hospitals": 6,
    "examples": 7,
    "held-out": 2,
    "rounds": 12,
    "daisy-period": 1,
    "aggregation-period": 4,
    "model-options": '{"hidden": [5]}',
    "batch-size": 4,
    "precision": "float64",
    "seed": 3,
}


class RecordingGrid(InProcessGrid):
    """Keeps every request and reply that passes the coordinator, decoded, with its position."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(courier, settings.algorithm.hospitals, settings.as_config())
        self.requests: list[tuple[int, Request]] = []
        self.replies: list[tuple[int, Reply]] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        batch = list(messages)
        for message in batch:
            position = message.metadata.dst_node_id - 100
            self.requests.append((position, decode_signed_request(from_records(message.content))))
        return super().push_messages(batch)

    def _deliver(self, message: Message) -> Message:
        reply = super()._deliver(message)
        if reply.has_content():
            position = message.metadata.dst_node_id - 100
            self.replies.append((position, decode_signed_reply(from_records(reply.content))))
        return reply

    def legs(self) -> list[tuple[int, TrainLeg]]:
        return [(who, what) for who, what in self.requests if isinstance(what, TrainLeg)]


@dataclass
class Run:
    """A finished run: its settings, what passed, what came out."""

    settings: Settings
    grid: RecordingGrid
    summary: dict[str, Any]
    model: dict[str, np.ndarray]


@pytest.fixture
def run_tiny(tmp_path: Path) -> Any:
    """Run the real ServerApp and ClientApp in process on the tiny problem, with changes."""

    def run_with(**changes: Any) -> Run:
        changed = {key.replace("_", "-"): value for key, value in changes.items()}
        config = TINY | {"run-dir": str(tmp_path / "run")} | changed
        settings = Settings.from_run_config(config, source="test")
        grid = RecordingGrid(settings)
        summary = run(grid, settings)
        model = load_file(Path(settings.algorithm.run_dir) / "model.safetensors")
        return Run(settings, grid, summary, model)

    return run_with


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    load_partitions.cache_clear()
