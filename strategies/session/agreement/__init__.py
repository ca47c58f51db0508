"""Before the first leg, and when the roster changes: connections, approval, agreement and keys."""
