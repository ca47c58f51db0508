"""`feddc hospital evaluate`, by hand and by the agent after an experiment has closed."""

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_app.agent.evaluations import EvaluationRunner
from client_app.configuration import Configuration
from client_app.final_models.model_folder import FinalModels, ModelFolder
from client_app.final_models.saved_network import new_network
from client_app.hospital_data import load_partition
from client_app.hospital_folder import HospitalFolder
from protocol.descriptor import Descriptor
from protocol.model_bytes import ModelState
from tests.client_app.commands import feddc
from tests.client_app.conftest import ROOT, Enrolled

# For the table of `enrolled`: three columns of numbers, two classes.
AGREED: dict[str, Any] = {
    "experiment": "e1",
    "rounds": 20,
    "daisy_period": None,
    "aggregation_period": 5,
    "init": "own",
    "shape": (3,),
    "classes": 2,
    "training": {"model": "linear", "learning-rate": 0.1},
    "training_seed": bytes(32),
    "sealed": True,
    "averaging": "secure",
    "roster": bytes(32),
}


def keep(folder: HospitalFolder, **changes: Any) -> ModelFolder:
    agreed = Descriptor(**(AGREED | changes))
    model = ModelState(*new_network(agreed, seed=3, device="cpu").arrays())
    return FinalModels(folder.models).keep(agreed, model, None)


def held_out(enrolled: Enrolled) -> int:
    """Return how many of the hospital's patients are held out."""
    configuration = Configuration.read(enrolled.folder.configuration)
    return len(load_partition(enrolled.folder, configuration, None).held_out)


def test_the_command_writes_both_evaluations_and_shows_them(enrolled: Enrolled) -> None:
    kept = keep(enrolled.folder)
    done = feddc("evaluate", "--folder", enrolled.folder.path)
    assert done.exit_code == 0, done.output
    found = kept.evaluation
    assert found is not None
    count = held_out(enrolled)
    assert f"the study's model: {count} held-out examples" in done.stdout
    assert f"a model trained on your data alone: {count} held-out examples" in done.stdout
    assert sum(map(sum, found["study"]["confusion"])) == count
    again = feddc("evaluate", "--folder", enrolled.folder.path)
    assert "No final model waits" in again.stdout
    chosen = feddc("evaluate", "e1", "--json", "--folder", enrolled.folder.path)
    assert json.loads(chosen.stdout) == found


def test_training_alone_can_be_left_out(enrolled: Enrolled) -> None:
    kept = keep(enrolled.folder)
    done = feddc("evaluate", "--without-alone", "--folder", enrolled.folder.path)
    assert "trained on your data alone: not trained" in done.stdout
    assert kept.is_evaluated


def test_wrong_calls_get_one_line_and_code_2(enrolled: Enrolled) -> None:
    keep(enrolled.folder)
    unknown = feddc("evaluate", "e2", "--folder", enrolled.folder.path)
    assert unknown.exit_code == 2
    assert "neither a model in" in unknown.stderr
    assert "(e1)" in unknown.stderr
    (enrolled.folder.models / "e1" / "descriptor.json").unlink()
    missing = feddc("evaluate", "e1", "--folder", enrolled.folder.path)
    assert missing.exit_code == 2
    assert "descriptor.json is missing" in missing.stderr
    assert missing.stderr.count("\n") == 1


def test_a_full_disk_is_named_and_the_earlier_evaluation_stays(
    enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep(enrolled.folder)
    feddc("evaluate", "--without-alone", "--folder", enrolled.folder.path)
    before = kept.evaluation

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = feddc("evaluate", "e1", "--folder", enrolled.folder.path)
    assert done.exit_code == 2
    assert f"no space left for {kept.path / 'evaluation.txt'}: " in done.stderr
    assert "B are needed; free some space there" in done.stderr
    assert kept.evaluation == before
    assert not [path for path in kept.path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_the_agent_evaluates_what_was_kept_before_and_while_it_runs(enrolled: Enrolled) -> None:
    kept = [keep(enrolled.folder)]
    done = EvaluationRunner(enrolled.folder)
    done.start()
    done._thread.join(0.1)
    kept.append(keep(enrolled.folder, experiment="e2"))
    done.model_kept()
    _wait_until_evaluated(kept)
    done.stop()
    for one in kept:
        assert one.evaluation is not None
        assert np.sum(one.evaluation["alone"]["confusion"]) == held_out(enrolled)


def _wait_until_evaluated(kept: list[ModelFolder]) -> None:
    import time

    deadline = time.monotonic() + 600
    while not all(one.is_evaluated for one in kept):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_process_of_an_evaluation_is_as_closed_as_the_agents(
    enrolled: Enrolled, tmp_path: Path
) -> None:
    """Patients are in its memory: not even another process of the agent's user may read it."""
    found = tmp_path / "found"
    is_dumpable = "ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)"
    core = "resource.getrlimit(resource.RLIMIT_CORE)[1]"
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, ctypes, os, pathlib, resource\n"
        f"values = lambda: f'{{{is_dumpable}}} {{{core}}} {{os.umask(0):o}}'\n"
        f"atexit.register(lambda: pathlib.Path({str(found)!r}).write_text(values()))\n"
    )
    command = EvaluationRunner(enrolled.folder)._command
    subprocess.run(
        [*command, "hospital", "evaluate", "--help"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert found.read_text() == "0 0 77"


def test_a_failed_evaluation_is_logged_and_not_repeated(
    enrolled: Enrolled, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep(enrolled.folder)
    calls = tmp_path / "calls"
    script = f"echo $2 >> {calls}; echo 'feddc: no data' >&2; exit 2"
    runner = EvaluationRunner(enrolled.folder, ["/bin/sh", "-c", script])
    for _ in range(2):
        for name in runner._pending():
            runner._evaluate(name)
    assert calls.read_text().splitlines() == ["e1"]
    assert "the model of e1 could not be evaluated: feddc: no data" in caplog.text
