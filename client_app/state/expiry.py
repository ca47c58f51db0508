"""Destroy experiments that were never closed, after a lifetime that the hospital has chosen."""

import logging

from .audit_log import AuditLog
from .experiment_ledger import ExperimentLedger
from .experiment_store import ExperimentStore
from .store import Store

logger = logging.getLogger(__name__)

_DAY_SECONDS = 24 * 60 * 60


def expire_experiments(store: Store, log: AuditLog, days: float) -> None:
    """Destroy the keys and state of every experiment that was agreed to more than `days` ago."""
    for experiment in store.older_than(days * _DAY_SECONDS):
        with store.transaction():
            ExperimentStore(store, experiment).expire()
            ExperimentLedger(store).close(experiment)
            line = {"kind": "expiry", "experiment": experiment, "bytes": 0}
            log.append(line, {"kind": "expired", "bytes": 0})
        logger.warning(
            "experiment %s was agreed to more than %g days ago and never closed: its keys are "
            "destroyed, and further requests for it are refused (experiment-lifetime in "
            "hospital.toml)",
            experiment,
            days,
        )
