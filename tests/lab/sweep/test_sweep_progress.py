"""How a sweep is shown: speed, time left, and what comes after it."""

import io

import pytest
from rich.console import Console

from lab.sweep import Record
from lab.sweep.sweep_progress import SweepProgress, shown_progress
from tests.lab.conftest import plan


def test_the_time_left_follows_from_the_experiments_own_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(SweepProgress, "clock", staticmethod(lambda: now))
    watch = SweepProgress(Console(file=io.StringIO()))
    first, second = plan(), plan(name="second")
    trial = first.final(first.cells[0], 0, 0.1)  # 6 rounds of 4 hospitals
    watch.expect(first, 2, 2 * 24)
    watch.expect(second, 1, 24)
    watch.planned(first, 2, 2 * 24)
    assert watch.seconds_left is None
    assert str(watch) == "tiny: 0 of 3 trainings"

    now = 4.0
    watch.done(trial, Record("", "feddc", 0, 0.1, "done"))
    assert watch.client_rounds == (24, 72)
    assert watch.seconds_left == 4.0
    assert str(watch) == "tiny: 1 of 3 trainings, 6 client-rounds/s, 0:04 min left, then second"

    watch.progress(first.final(first.cells[1], 0, 0.1), 12)
    assert watch.client_rounds == (36, 72)
    assert watch.seconds_left == pytest.approx(12 / 9)


def test_a_terminal_has_a_bar_and_a_log_has_lines() -> None:
    file = io.StringIO()
    with shown_progress(Console(file=file, force_terminal=True, width=100)) as watch:
        watch.planned(plan(), 3, 72)
    assert "tiny: 0 of 3 trainings" in file.getvalue()
    log = io.StringIO()
    with shown_progress(Console(file=log)) as watch:
        watch.planned(plan(), 3, 72)
    assert log.getvalue() == ""  # the first line comes after some seconds
