"""Ctrl-C in a real process: finished trainings are kept, and the same command continues."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import wait_until

OPTIONS = "--hospitals 4 --examples 6 --seeds 1 --workers 2 --set rounds=2000"
COMMAND = f"lab run --dataset breast-cancer {OPTIONS} --methods feddc,fedavg-b"


@pytest.mark.slow
@pytest.mark.timing
def test_a_stopped_command_goes_on_when_it_is_given_again(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "operation.cli", *COMMAND.split()]
    here = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(here), "OMP_NUM_THREADS": "1"}

    first = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that are themselves a shell's background job have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: first.poll() is not None or any(tmp_path.glob("runs/*/trials/*.json")), 300)
    # As a terminal does: to every process of the group.
    os.killpg(first.pid, signal.SIGINT)
    _, said = first.communicate(timeout=300)
    assert first.returncode == 130, said
    assert "run the same command" in said
    kept = {path.name: path.stat().st_mtime for path in tmp_path.glob("runs/*/trials/*.json")}
    assert 1 <= len(kept) < 6

    second = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert second.returncode == 0, second.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    trials = {path.name: path.stat().st_mtime for path in (folder / "trials").iterdir()}
    assert len(trials) == 6
    assert kept.items() <= trials.items()
    assert (folder / "results.json").is_file()
    assert not (folder / "checkpoints").exists()
