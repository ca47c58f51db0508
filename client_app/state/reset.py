"""The operator's way out of a stopped agent: forget all experiments, keep who one is."""

from protocol.keys import Identity

from .audit_log import AuditTrail
from .store import Store


def forget_experiments(store: Store, identity: Identity) -> None:
    """Destroy the keys and memory of every experiment; the audit log stays and says so."""
    trail = AuditTrail(store, identity)
    with store.transaction():
        head = store.get(AuditTrail.HEAD)
        store.delete("")
        if head is not None:
            store.put(AuditTrail.HEAD, head)
        trail.append({"kind": "forget", "bytes": 0}, {"kind": "forgotten", "bytes": 0})
