"""Memory that a training step gives back stays with the process, ready for the next step."""

import contextlib
import ctypes
import sys

# glibc's names for mallopt, from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Ask glibc not to return large blocks to the system; elsewhere do nothing.

    A convolution's activations are megabytes that torch allocates and frees in every step, and each
    time the system would hand out zeroed pages anew. One arena, because only the first can grow to
    any size.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(AttributeError, OSError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_ARENA_MAX, 1)
        libc.mallopt(_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_TRIM_THRESHOLD, _LARGEST)
