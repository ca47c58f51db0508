"""Saying no: a code from a closed list for the coordinator, the detail for the local log."""

from protocol.messages import RefusalCode


class Refused(Exception):
    """A request will not be served; the code goes out, the detail stays in the local log."""

    def __init__(self, code: RefusalCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
