"""Refusals: the coordinator gets a code from a closed list, the local log the detail."""

from protocol.messages import RefusalCode


class Refused(Exception):
    """A request is refused; the code is sent, the detail stays in the local log."""

    def __init__(self, code: RefusalCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
