import pytest

from .quickstart import FOLDER


@pytest.fixture(autouse=True)
def _example_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
