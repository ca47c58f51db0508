"""Flower's logger, by its name: what is logged here appears in the run's log."""

import logging

FLOWER_LOGGER = logging.getLogger("flwr")
log = FLOWER_LOGGER.log
