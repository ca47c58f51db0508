"""Programs that are kept running: started again, logged, and ended with all they started."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from operation import log_lines
from operation.clock import Clock
from operation.processes.supervision import Program, keep_running
from tests.fake_clock import FakeClock
from tests.processes import is_alive, wait_until

pytestmark = pytest.mark.timing
ROOT = Path(__file__).parents[2]


def program(tmp_path: Path, script: str, clock: Clock | None = None) -> Program:
    logger = log_lines.configure(tmp_path / "log.jsonl", terminal=False).getChild("it")
    return Program(
        "it",
        lambda: [sys.executable, "-u", "-c", script],
        os.environ | {"PYTHONPATH": str(ROOT)},
        logger,
        clock=clock or Clock(),
    )


def logged(tmp_path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]


def kept(it: Program, until: Callable[[], bool]) -> int:
    """Keep a program running in this process until something is so, then ask to end."""

    def ask() -> None:
        wait_until(until)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=ask, daemon=True)
    watcher.start()
    return keep_running([it], clock=it.clock)


def test_a_program_that_ends_is_started_again(tmp_path: Path) -> None:
    it = program(tmp_path, "print('ERROR :  going'); raise SystemExit(3)", FakeClock())

    number = kept(it, lambda: sum(line["text"] == "going" for line in logged(tmp_path)) >= 3)

    assert number == signal.SIGTERM
    lines = logged(tmp_path)
    assert {"error"} == {line["level"] for line in lines if line["text"] == "going"}
    assert any("it ended with exit code 3; starting it again" in line["text"] for line in lines)


def test_the_pause_grows_and_has_a_limit_and_a_stable_program_starts_at_once(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    it = program(tmp_path, "raise SystemExit(1)", clock)

    def end() -> float:
        """Let the program end; return the seconds until it is started again."""
        assert it.process is not None
        it.process.wait()
        it.look_after()
        ended = clock.now()
        while it.process is None:
            clock.sleep(0.5)
            it.look_after()
        return clock.now() - ended

    it.look_after()
    assert [end() for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    clock.sleep(61.0)
    assert end() == 1.0
    it.stop()


def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    script = (
        "import subprocess, time, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('child', child.pid)\ntime.sleep(600)\n"
    )
    it = program(tmp_path, script)

    kept(it, lambda: any(line["text"].startswith("child") for line in logged(tmp_path)))

    (child,) = [
        int(line["text"].split()[1]) for line in logged(tmp_path) if "child" in line["text"]
    ]
    wait_until(lambda: not is_alive(child))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_a_killed_supervisor_takes_its_programs_along(tmp_path: Path) -> None:
    script = (
        "import os, sys, logging\n"
        "from operation.processes.supervision import Program, keep_running\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "def told(pid): print(pid, flush=True)\n"
        "keep_running([Program('it', lambda: sleep, dict(os.environ), logging.getLogger(), "
        "after_start=told)])\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        # Not before it has become the program: until then it has our own words in its arguments.
        wait_until(lambda: _arguments(pid)[1:2] == ["-c"])
    finally:
        supervisor.kill()
        supervisor.wait()

    wait_until(lambda: not is_alive(pid))


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("\x1b[92mINFO \x1b[0m:      Starting\n", logging.INFO, "Starting"),
        ("\x1b[93mWARNING \x1b[0m:   retrying\n", logging.WARNING, "retrying"),
        ("2026-01-01T00:00:00.000Z ERROR [x] went wrong\n", logging.ERROR, "[x] went wrong"),
        ("2026/01/01 00:00:00 [emerg] 7#7: bind() failed\n", logging.ERROR, "7#7: bind() failed"),
        ("plain words\n", logging.INFO, "plain words"),
        ("INFO:     Application startup complete.\n", logging.INFO, ""),
        ("\n", logging.INFO, ""),
    ],
)
def test_other_programs_lines_are_read(line: str, level: int, text: str) -> None:
    assert log_lines.read_line(line) == (level, text)


def _arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
