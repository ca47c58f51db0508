"""A test of a federation that is ended by a signal leaves no process behind."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.federation.federation import ROOT, needs_nginx, wait_for
from tests.janitor import janitor, processes_of

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]

INTERRUPTED = "tests/federation/test_approvals.py"


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_nothing_is_left_of_a_test_that_is_ended(number: signal.Signals) -> None:
    # Everything of the interrupted test is in this folder, and names it.
    folder = Path(tempfile.mkdtemp(prefix="i-"))
    with janitor(folder), (folder / "output").open("wb") as output:
        tests = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", INTERRUPTED],
            cwd=ROOT,
            env=dict(os.environ) | {"TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

        def look() -> bool | None:
            ended = tests.poll() is not None
            assert not ended, (folder / "output").read_text(errors="replace")
            return bool(list(folder.glob("*/study/experiments/*"))) or None

        wait_for(look, "an experiment of the interrupted test", 600)
        (study,) = folder.glob("fdc-*")
        assert len(processes_of(study)) > 10  # agents, SuperNodes, SuperLink, proxy, ServerApp

        tests.send_signal(number)

        assert tests.wait(60) == -number
        wait_for(lambda: None if processes_of(study) else True, "end of all processes", 120)
        wait_for(lambda: None if study.exists() else True, "end of its folder", 120)
