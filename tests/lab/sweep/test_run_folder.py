"""A comparison's folder: what it may grow into, its time, its lock, and what is not its own."""

import json
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.commands.run_command import run_all, write
from lab.experiments import ExperimentError
from lab.sweep import Request, RunFolder, Stopped, SweepPlan, sweep
from lab.sweep import folder as folder_module
from lab.sweep.ready import ready
from learning.local_data import load_dataset
from tests.lab.conftest import Quiet, tiny

REQUEST = Request(tiny(), "laptop")


def never() -> bool:
    return False


@pytest.mark.parametrize(
    ("there", "here", "told"),
    [
        (tiny(), tiny(settings={"hospitals": 5, "examples": 4}), "hospitals 4, not 5; examples 6"),
        (tiny(), tiny(laptop={"learning-rates": [0.1]}), r"learning-rates \[0.1, 0.5\], not"),
        (tiny(), tiny(name="other"), "tiny, not other"),
        (tiny(), tiny(variants=[{"label": "x"}]), "variants"),
        (tiny(full=tiny().laptop), tiny(full=tiny().laptop), "preset laptop, not full"),
    ],
)
def test_a_folder_grows_by_seeds_and_methods_only(
    there: Any, here: Any, told: str, tmp_path: Path
) -> None:
    RunFolder.for_request(Request(there, "laptop"), tmp_path)
    before = (tmp_path / "sweep.json").read_text()
    other = Request(here, "full" if told.startswith("preset") else "laptop")
    with pytest.raises(ExperimentError, match=f"{told}.*: choose another --run-dir"):
        RunFolder.for_request(other, tmp_path)
    assert (tmp_path / "sweep.json").read_text() == before
    RunFolder.for_request(Request(there, "laptop", methods=("feddc",), seeds=7), tmp_path)
    reworded = there.model_copy(update={"note": "said in other words", "paper": {}})
    RunFolder.for_request(Request(reworded, "laptop"), tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").write_text("")
    with pytest.raises(ExperimentError, match="not a run folder: choose another"):
        RunFolder.for_request(REQUEST, tmp_path)


def test_changed_data_are_not_answered_with_old_figures(tmp_path: Path) -> None:
    table = tmp_path / "study.csv"

    def request(last: int) -> Request:
        rows = [f"{n},{n % 7},{n % 2}" for n in range(60)]
        table.write_text("\n".join(["a,b,label", *rows, f"{last},0,1"]))
        load_dataset.cache_clear()  # another command is another process
        own = tiny(settings={"dataset": "csv", "data-dir": str(table)})
        return ready(Request(own, "laptop")).request

    first = request(60)
    assert first.data
    RunFolder.for_request(first, tmp_path / "run")
    table.touch()
    assert request(60).data == first.data
    with pytest.raises(ExperimentError, match=r"the data have changed since\): choose another"):
        RunFolder.for_request(request(61), tmp_path / "run")
    # A run from before data were noted can go on.
    unknown = replace(first, data="")
    RunFolder.for_request(unknown, tmp_path / "older")
    RunFolder.for_request(first, tmp_path / "older")


def test_damaged_folders_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = RunFolder.for_request(REQUEST)
    for name, text in (("zzz-1", "{"), ("zzz-2", "[]"), ("zzz-3", "\x00")):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "sweep.json").write_text(text)
    assert RunFolder.for_request(REQUEST).path == whole.path


@pytest.mark.slow
def test_a_folder_in_use_is_refused_with_the_process_that_has_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=_hold, args=(tmp_path, theirs))
    other.start()
    try:
        assert ours.recv() == "held"
        folder = RunFolder.for_request(REQUEST, tmp_path)
        wanted = f"in use by process {other.pid}: wait until it ends"
        with pytest.raises(ExperimentError, match=wanted), folder.used_for(REQUEST):
            pass
    finally:
        other.kill()
        other.join()
    with folder.used_for(REQUEST):  # however the other ended
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def _hold(path: Path, connection: Any) -> None:
    with RunFolder.for_request(REQUEST, path).used_for(REQUEST):
        connection.send("held")
        connection.recv()


class Clock:
    """Time as a test tells it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_time_before_a_stop_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(folder_module, "time", clock)
    with RunFolder.for_request(REQUEST, tmp_path).used_for(REQUEST):
        clock.now += 30
    clock.now += 500  # nobody works on it
    again = RunFolder.for_request(REQUEST, tmp_path)
    with again.used_for(REQUEST):
        clock.now += 12
        assert again.seconds == 42
    assert json.loads((tmp_path / "clock.json").read_text()) == {"seconds": 42}


def test_figures_are_of_the_plans_own_trainings(tmp_path: Path) -> None:
    whole = SweepPlan(REQUEST)
    folder = RunFolder(tmp_path)
    with folder.used_for(REQUEST):
        sweep(whole, folder, watcher=Quiet(), stop=never, workers=1)
    records = folder.records()
    part = SweepPlan(replace(REQUEST, methods=("feddc",), seeds=1))
    own = part.own(records)
    assert {record.method for record in own.values()} == {"feddc"}
    assert len(own) == 2
    found = write(part, folder).read("results.json")
    assert found["core_seconds"] == round(sum(record.seconds for record in own.values()), 1)
    assert found["seconds"] < folder.seconds


def test_a_stopped_command_says_how_much_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise Stopped

    monkeypatch.setattr("lab.commands.run_command.sweep", stopped)
    run: Callable[..., int] = run_all
    assert run([REQUEST], run_dir=tmp_path / "run", workers=1, json_output=False) == 130
    assert "0 trainings are saved" in capsys.readouterr().err
    assert (tmp_path / "run" / "clock.json").is_file()
