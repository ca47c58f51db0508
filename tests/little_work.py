"""A limit on work that holds on any machine, busy or not: a multiple of a known job's CPU time."""

import json
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# The known job, to parse this document, and how often it would fit into "little work".
_DOCUMENT = json.dumps({str(number): [number, "x" * 20] for number in range(20_000)})
_MOST = 200
_SURELY_LITTLE = 0.02  # seconds: not worth a comparison
_TRIES = 3


def with_little_work(work: Callable[[], T]) -> T:
    """Return what `work` returns; fail if it takes as much CPU time as 200 known jobs.

    One of them is measured right after it. Another program may have disturbed the work, so it is
    repeated before it fails.
    """
    for _ in range(_TRIES):
        started = time.thread_time()
        result = work()
        spent = time.thread_time() - started
        if spent < _SURELY_LITTLE or spent < _MOST * _known_job():
            return result
    raise AssertionError(f"{spent:.2f} s of CPU time are as much as {_MOST} known jobs take")


def _known_job() -> float:
    started = time.thread_time()
    json.loads(_DOCUMENT)
    return time.thread_time() - started
