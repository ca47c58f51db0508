"""What tests of FedDC and of wrapped strategies share."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest


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
