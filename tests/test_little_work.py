"""The limit on work is kept by what is quick, and broken by what is not."""

import pytest

from tests import little_work
from tests.little_work import with_little_work


def test_what_is_quick_is_done_once_and_its_result_returned() -> None:
    calls: list[int] = []
    assert with_little_work(lambda: calls.append(1) or "done") == "done"
    assert calls == [1]


def test_what_is_slow_fails_however_often_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both are measured by a clock of this test, in which the known job takes a second.
    now, calls = [0.0], []
    monkeypatch.setattr(little_work.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(little_work, "_known_job", lambda: 1.0)

    def work() -> None:
        now[0] += 200.0
        calls.append(1)

    with pytest.raises(AssertionError, match=r"200\.00 s of CPU time are as much as 200 known"):
        with_little_work(work)
    assert len(calls) == 3
