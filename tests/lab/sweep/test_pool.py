"""Processes that train: what goes wrong in one is one line, however it ends."""

import multiprocessing
from pathlib import Path

import pytest

from lab.sweep import RunFolder, sweep
from lab.sweep.pool import SweepFailed
from lab.sweep.record import Record
from lab.sweep.trial import Trial
from tests.lab.conftest import Quiet, plan


def never() -> bool:
    return False


def test_an_error_of_any_kind_is_one_line_also_without_further_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MemoryError("two\nlines")

    monkeypatch.setattr("lab.sweep.pool.train", broken)
    with pytest.raises(
        SweepFailed, match=r"feddc, rate 0\.1, seed 0: MemoryError: two lines"
    ) as end:
        sweep(plan(), RunFolder(tmp_path), watcher=Quiet(), stop=never, workers=1)
    assert not end.value.is_input


class Killer(Quiet):
    """Kills one of the training processes once the first training is done."""

    def done(self, trial: Trial, record: Record) -> None:
        super().done(trial, record)
        if len(self.trained) == 1:
            multiprocessing.active_children()[-1].kill()


@pytest.mark.slow
def test_a_process_killed_from_outside_ends_the_sweep_and_what_is_done_is_kept(
    tmp_path: Path,
) -> None:
    ours = plan(methods=["feddc", "fedavg-b"], settings={"rounds": 300}, laptop={"seeds": 2})
    with pytest.raises(SweepFailed, match=r"was killed \(exit code -9\)"):
        sweep(ours, RunFolder(tmp_path), watcher=Killer(), stop=never, workers=2)
    kept = RunFolder(tmp_path).records()
    assert kept
    assert not multiprocessing.active_children()
    second = Quiet()
    sweep(ours, RunFolder(tmp_path), watcher=second, stop=never, workers=1)
    assert not set(kept) & set(second.trained)
