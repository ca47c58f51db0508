"""How the coordinator learns that a hospital may have answered, where something can tell it."""

import time


class Bell:
    """Can't tell: whoever waits looks again after a while."""

    tells = False

    def ring(self, node: int) -> None:
        """Say that a message for the node has been sent, completely."""

    def wait(self, seconds: float) -> frozenset[int] | None:
        """Wait; return the nodes that have come back since, or nothing if that can't be told."""
        time.sleep(seconds)
        return None
