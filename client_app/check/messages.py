"""Check whether the SuperNode's messages are answered, from what `connect` writes down."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from client_app.connect.message_record import FILE_NAME, MessageTimes
from client_app.hospital_folder import HospitalFolder

from .finding import Finding

_RECENT_SECONDS = 7 * 86400.0


def check_messages(
    folder: HospitalFolder, now: Callable[[], float] = time.time
) -> Iterator[Finding]:
    """Report the last message and its reply, and a recent restart because of a lost one.

    Nothing, if `connect` has not run here or runs in a container of its own.
    """
    times = MessageTimes.read(folder.transport / FILE_NAME)
    if times is None or times.received is None:
        return
    if times.restarted is not None and now() - times.restarted < _RECENT_SECONDS:
        yield Finding(
            "messages",
            "warning",
            f"one got lost: the SuperNode was restarted at {_shown(times.restarted)} "
            f"({times.restarts} in all); {_last(times)}",
            "nothing, if it was one; otherwise look for the reason in transport/connect.jsonl",
        )
    else:
        yield Finding("messages", "fine", _last(times))


def _last(times: MessageTimes) -> str:
    came = f"the last came at {_shown(times.received)}"
    if times.answered is not None and times.answered >= (times.received or 0):
        return f"{came} and was answered at {_shown(times.answered)}"
    return f"{came} and has no answer yet"


def _shown(moment: float | None) -> str:
    return f"{datetime.fromtimestamp(moment or 0, UTC):%Y-%m-%d %H:%M:%S} UTC"
