"""What the data tests share: real data where there are any, and refusals as text."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from learning.data import DataError


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """Return a real data set's folder, or skip the test."""

    def find(name: str) -> Path:
        root = os.environ.get("FEDDC_DATA")
        if not root:
            pytest.skip(f"FEDDC_DATA is not set: needs the real data of {name}")
        folder = Path(root) / name
        if not folder.is_dir():
            pytest.skip(f"no folder {name} under FEDDC_DATA")
        return folder

    return find


@pytest.fixture
def refusal() -> Callable[[Callable[[], object]], str]:
    """Return the one line a call is refused with."""

    def run(call: Callable[[], object]) -> str:
        with pytest.raises(DataError) as caught:
            call()
        message = str(caught.value)
        assert "\n" not in message
        return message

    return run
