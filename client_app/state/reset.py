"""Let the operator restart a stopped agent: delete all experiments, keep identity and audit log."""

from protocol.keys import Identity

from .audit_log import AuditLog
from .store import Store


def reset_experiments(store: Store, identity: Identity) -> None:
    """Destroy the keys and state of every experiment, and add a line about it to the audit log."""
    log = AuditLog(store, identity)
    with store.transaction():
        head = store.get(AuditLog.HEAD)
        store.delete("")
        if head is not None:
            store.put(AuditLog.HEAD, head)
        log.append({"kind": "reset", "bytes": 0}, {"kind": "reset", "bytes": 0})
