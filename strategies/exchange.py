"""One exchange over Flower's Grid: a request to each hospital, its reply or the reason for none."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from protocol.messages import MessageError, Refusal, Reply, decode_reply
from protocol.records import from_records, to_records

_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
_GRACE = 60.0


@dataclass(frozen=True)
class Answer:
    """A hospital's answer: a reply, or why there is none. Times are the coordinator's own."""

    reply: Reply | None
    problem: str
    seconds: float
    bytes_down: int
    bytes_up: int


def exchange(
    grid: Grid, requests: Mapping[int, bytes], *, timeout: float, group: str
) -> dict[int, Answer]:
    """Send each node its request's bytes and wait for all answers, at most `timeout` seconds.

    Flower's own `send_and_receive` polls every three seconds; a leg is often shorter than that.
    """
    started = time.monotonic()
    answers: dict[int, Answer] = {}
    pending: dict[str, int] = {}
    sizes: dict[int, int] = {}
    for node, data in requests.items():
        sizes[node] = len(data)
        message = Message(
            to_records(data), node, MessageType.TRAIN, group_id=group, ttl=timeout + _GRACE
        )
        # One at a time: of several, Flower silently leaves out those it can't deliver.
        ids = list(grid.push_messages([message]))
        if ids and ids[0]:  # a SuperLink gives an undeliverable message an empty id
            pending[ids[0]] = node
        else:
            answers[node] = Answer(None, "not connected", 0.0, 0, 0)
    pause = _FIRST_PAUSE
    while pending and time.monotonic() - started < timeout:
        arrived = list(grid.pull_messages(list(pending)))
        for message in arrived:
            # The sender is who was asked: Flower gives another id when a SuperNode was killed.
            replied = pending.pop(message.metadata.reply_to_message_id, None)
            if replied is not None:
                seconds = time.monotonic() - started
                answers[replied] = _read(message, seconds, sizes[replied])
        if arrived:
            pause = _FIRST_PAUSE
        elif pending:
            time.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)
    for node in pending.values():
        answers[node] = Answer(None, f"no answer in {timeout:g} s", timeout, sizes[node], 0)
    return answers


def _read(message: Message, seconds: float, bytes_down: int) -> Answer:
    if message.has_error():
        return Answer(None, f"Flower error {message.error.code}", seconds, bytes_down, 0)
    try:
        data = from_records(message.content)
        reply = decode_reply(data)
    except MessageError as error:
        return Answer(None, f"unreadable reply: {error}", seconds, bytes_down, 0)
    problem = f"refused: {reply.code}" if isinstance(reply, Refusal) else ""
    return Answer(reply, problem, seconds, bytes_down, len(data))
