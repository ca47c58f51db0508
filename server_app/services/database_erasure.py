"""Erase the SuperLink's database after every experiment and when the services stop.

Readable models pass through it. Experiments that failed or were stopped are resumed from their
journal, never from the database.
"""

import logging
from pathlib import Path

from operation.clock import Clock
from operation.flower.superlink_database import NotErased, ended_runs, erase
from operation.terminal import byte_size

_LOOK_SECONDS = 1.0
_REPORTED_FAILURES = 30  # the first ones may be due to a SuperLink that is just starting


def erase_after_runs(database: Path, logger: logging.Logger, clock: Clock | None = None) -> None:
    """Erase the database whenever all of its runs have ended, beside a running SuperLink."""
    clock = clock or Clock()
    erased, failures = None, 0
    while True:
        try:
            runs = ended_runs(database) if database.exists() else None
            if runs is not None and runs != erased:
                before = _size(database)
                if erase(database, unless_running=True):
                    erased = runs
                    sizes = f"{byte_size(before)} before, {byte_size(_size(database))} now"
                    logger.info(f"erased the messages and models of ended experiments ({sizes})")
            failures = 0
        except NotErased as error:
            failures += 1
            if failures == _REPORTED_FAILURES:
                logger.warning(f"models of ended experiments are not erased yet: {error}; retrying")
        clock.sleep(_LOOK_SECONDS)


def erase_stopped(database: Path) -> str:
    """Erase the database of a SuperLink that has ended; return why that failed, or nothing."""
    try:
        if database.exists():
            erase(database, unless_running=False)
    except NotErased as error:
        return (
            f"messages and models of experiments are not erased: {error}; run `feddc coordinator "
            "down` to try again"
        )
    return ""


def _size(database: Path) -> int:
    return sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))
