"""The memory settings of the engine's process."""

import subprocess
import sys

import pytest

CODE = """
import ctypes, os
from lab.engine.backends.memory import keep_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def step():
    block = libc.malloc(100_000_000)
    ctypes.memset(block, 1, 100_000_000)
    libc.free(block)

before = resident()
keep_freed_memory()
keep_freed_memory()
reserved = resident() - before
step()
print(reserved, resident() - before)
step()
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
@pytest.mark.slow
def test_what_a_step_frees_is_there_for_the_next_and_nothing_is_taken_in_advance() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=300
    )
    reserved, after_one, after_two = map(int, done.stdout.split())
    assert reserved < 20_000_000
    assert after_one > 90_000_000  # kept
    assert after_two < after_one + 20_000_000  # and used again
