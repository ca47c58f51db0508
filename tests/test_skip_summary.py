"""The last line of a test run names what was skipped and how to run it, with xdist or without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_data(n):
    pytest.skip("FEDDC_DATA is not set: needs the real data of mnist")

def test_docker():
    pytest.skip("docker is not installed")

def test_other():
    pytest.skip("no access lists here")

@pytest.mark.slow
@pytest.mark.parametrize("n", range(4))
def test_slow(n):
    pass

@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("n", range(2))
def test_long(n):
    pass

def test_plain():
    pass
"""


def last_line(folder: Path, *options: str) -> str:
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  long\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.skip_summary"),
            *("--basetemp", str(folder / "own"), *options),  # else it clears away other runs'
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_what_was_skipped_is_the_last_line(workers: list[str], tmp_path: Path) -> None:
    assert last_line(tmp_path, "-m", "not slow", *workers) == (
        "skipped: 1 need Docker (start an engine or set DOCKER_HOST), "
        "3 need data sets (set FEDDC_DATA to their folder), 1 no access lists here, "
        "2 long (make test-long), 4 slow (make test-slow)"
    )


def test_beside_slow_tests_only_the_long_ones_are_named(tmp_path: Path) -> None:
    chosen = last_line(tmp_path, "-m", "slow and not long")
    assert chosen == "skipped: 2 long (make test-long)"


def test_long_tests_alone_leave_nothing_to_name(tmp_path: Path) -> None:
    assert last_line(tmp_path, "-m", "long").startswith("=")
