"""Let the operator restart a stopped agent: destroy all experiments, keep the audit log."""

from protocol.sealing.keys import Identity

from .audit_log import AuditLog
from .experiment_ledger import ExperimentLedger
from .privacy.ledger import PrivacyLedger
from .privacy.ledger_file import LedgerFile
from .store import STOPPED, Store


def reset_experiments(
    store: Store, identity: Identity, privacy_file: LedgerFile | None = None
) -> None:
    """Destroy the keys and state of every experiment, and add a line about it to the audit log.

    The ledger goes on counting those that had begun, and the privacy ledger forgets nothing.
    """
    log, ledger = AuditLog(store, identity), ExperimentLedger(store)
    with store.transaction():
        for experiment in store.experiments():
            store.destroy(experiment)
        store.delete(STOPPED)
        begun = (entry for entry in ledger.entries() if entry.state in ("agreed", "closed"))
        ledger.keep(tuple(entry.with_state("closed") for entry in begun))
        PrivacyLedger(store, privacy_file).merge()
        log.append({"kind": "reset", "bytes": 0}, {"kind": "reset", "bytes": 0})
