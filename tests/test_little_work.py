"""The limit on work is kept by what is quick, and broken by what is not."""

import json

import pytest

from tests import little_work
from tests.little_work import with_little_work


def test_what_is_quick_is_done_once_and_its_result_returned() -> None:
    calls: list[int] = []
    assert with_little_work(lambda: calls.append(1) or "done") == "done"
    assert calls == [1]


def test_what_is_slow_fails_however_often_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(little_work, "_MOST", 2)
    document = json.dumps([{"key": number} for number in range(500_000)])
    calls: list[int] = []
    with pytest.raises(AssertionError, match="as much as 2 known jobs"):
        with_little_work(lambda: calls.append(len(json.loads(document))))
    assert len(calls) == 3
