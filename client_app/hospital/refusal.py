"""Refusals: the coordinator gets a code from a closed list, the local log the detail."""

from collections.abc import Callable

from protocol.messages import RefusalCode


class Refused(Exception):
    """A request is refused; the code is sent, the detail stays in the local log.

    `record` stores what must outlive the refusal, together with its line in the audit log. A
    refusal that is `expected`, as from a coordinator that asks again, is not worth a warning.
    """

    def __init__(
        self,
        code: RefusalCode,
        detail: str,
        *,
        record: Callable[[], None] = lambda: None,
        expected: bool = False,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.record = record
        self.expected = expected
