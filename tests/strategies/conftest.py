"""What tests of FedDC and of wrapped strategies share."""

from typing import Any

import pytest


@pytest.fixture
def run_open(run_tiny: Any) -> Any:
    """Run without envelopes: they take time, and no aggregate depends on them."""
    return lambda **changes: run_tiny(**{"sealed": False} | changes)
