"""The SuperLink's process is set to keep little in memory before Flower's code takes over."""

import subprocess
import sys

PROBE = """
import gc, sqlite3
from operation.flower import superlink

def probe():
    (limit,) = sqlite3.connect(":memory:").execute("PRAGMA soft_heap_limit").fetchone()
    print(limit, gc.get_freeze_count() > 100_000, *gc.get_threshold())

superlink.private_superlink.serve = probe
superlink.main()
"""


def test_limits_are_set_for_the_whole_process() -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=120
    )
    assert told.stdout.split() == [str(8 * 1024 * 1024), "True", "500", "5", "2"]
