"""Flower's logger, by its name: what is logged here appears in the run's log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

FLOWER_LOGGER = logging.getLogger("flwr")
log = FLOWER_LOGGER.log


@contextmanager
def only_from(level: int) -> Iterator[None]:
    """Suppress what Flower logs below a level."""
    before = FLOWER_LOGGER.level
    FLOWER_LOGGER.setLevel(max(before, level))
    try:
        yield
    finally:
        FLOWER_LOGGER.setLevel(before)
