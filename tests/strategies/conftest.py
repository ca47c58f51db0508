"""What tests of exchanges, FedDC and wrapped strategies share: time, and runs without envelopes."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from strategies.session import exchange as exchange_module
from strategies.session import members as members_module


class Clock:
    """Time that passes only where somebody sleeps: a timeout costs none."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Waiting costs no time."""
    clock = Clock()
    monkeypatch.setattr(exchange_module, "time", clock)
    monkeypatch.setattr("operation.clock.time", clock)
    monkeypatch.setattr(members_module, "time", clock)
    return clock


@pytest.fixture
def run_open(run_tiny: Any) -> Any:
    """Run without envelopes: they take time, and no aggregate depends on them."""
    return lambda **changes: run_tiny(**{"sealed": False} | changes)


@pytest.fixture
def little_garbage() -> Iterator[None]:
    """Flower's Bulyan and QFedAvg collect garbage after every array: leave little to search."""
    gc.freeze()
    yield
    gc.unfreeze()
