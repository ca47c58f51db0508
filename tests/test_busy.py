"""The CPU hogs of `make test-busy`: they run, and none is left however the command ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.busy import hogs
from tests.processes import children, is_alive, wait_until

ROOT = Path(__file__).parents[1]


def test_hogs_run_within_the_block_only() -> None:
    with hogs(2) as pids:
        assert len(pids) == 2
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_no_hog(number: signal.Signals, tmp_path: Path) -> None:
    here = tmp_path / "here"
    command = f"import pathlib, time; pathlib.Path({str(here)!r}).touch(); time.sleep(600)"
    busy = subprocess.Popen(
        [sys.executable, "-m", "tests.busy", "--hogs", "2", sys.executable, "-c", command],
        cwd=ROOT,
        start_new_session=True,
        # Tests that are a shell's background job have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(here.exists)
    family = children(busy.pid)
    assert len(family) == 3

    os.killpg(busy.pid, number)  # as a terminal does

    assert busy.wait(120)
    wait_until(lambda: not any(map(is_alive, family)))


def test_a_killed_run_leaves_no_hog() -> None:
    command = [sys.executable, "-m", "tests.busy", "--hogs", "2", "sleep", "600"]
    busy = subprocess.Popen(command, cwd=ROOT)
    wait_until(lambda: len(children(busy.pid)) == 3)
    *spinning, sleeping = children(busy.pid)

    busy.kill()
    busy.wait()

    wait_until(lambda: not any(map(is_alive, spinning)))
    os.kill(sleeping, signal.SIGKILL)


def test_a_failing_command_is_not_repeated_and_its_code_is_passed_on() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.busy", "--hogs", "1", "--times", "5",
         sys.executable, "-c", "raise SystemExit(3)"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stdout == "run 1 of 5\n"
