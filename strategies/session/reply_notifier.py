"""How the coordinator learns that a hospital may have replied."""

from operation.clock import Clock


class ReplyNotifier:
    """Gives no notifications; callers poll."""

    available = False

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()

    def message_sent(self, node: int) -> None:
        """Note that a message to the node has been sent completely."""

    def wait(self, seconds: float) -> frozenset[int] | None:
        """Wait; return the nodes that may have replied meanwhile, `None` where unknown."""
        self._clock.sleep(seconds)
        return None
