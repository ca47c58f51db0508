"""The watchdog over a SuperNode's messages: by its rules, and with a real SuperNode."""

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_app.connect.message_record import MessageRecord, MessageTimes
from client_app.connect.supernode import _explanation
from client_app.connect.supernode_runner import LOST_MESSAGE, SuperNodeRunner
from client_app.connect.watchdog import Watchdog
from operation.clock import Clock
from operation.flower.tasks import TaskSource
from protocol.address import Address
from tests.client_app.running_supernode import (
    Node,
    Processes,
    SuperLink,
    running_superlink,
    supernode_command,
)
from tests.fake_clock import FakeClock
from tests.processes import free_port, wait_until

RECEIVED = "INFO :      Received successfully"
REPLYING = "INFO :      Sending: train message (ID: 4f)"
SENT = "INFO :      Sent successfully"


class Story:
    """A watchdog, and what happens to its SuperNode."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.dog = Watchdog(self.clock)

    def tell(self, *events: str | float) -> bool:
        """Let things happen, with seconds between them; return whether the SuperNode is stuck."""
        for event in events:
            match event:
                case float() | int():
                    self.clock.sleep(event)
                case "courier":
                    self.dog.courier_started()
                case "courier done":
                    self.dog.courier_ended(failed=False)
                case "courier killed":
                    self.dog.courier_ended(failed=True)
                case line:
                    self.dog.read_line(line)
        return self.dog.is_stuck


STUCK: dict[str, tuple[str | float, ...]] = {
    "a stolen task": (RECEIVED, 91),
    "a courier killed before it had its message": (RECEIVED, "courier", "courier killed", 91),
    "a courier killed while it handed in its reply": (
        *(RECEIVED, "courier", 5, REPLYING, "courier killed", 91),
    ),
    "the second message": (RECEIVED, "courier", REPLYING, "courier done", SENT, RECEIVED, 91),
}
NOT_STUCK: dict[str, tuple[str | float, ...]] = {
    "no message yet": (1000,),
    "a task not yet taken": (RECEIVED, 89),
    "hours of training": (RECEIVED, "courier", 36000),
    "a courier that has just ended": (RECEIVED, "courier", 36000, "courier killed", 89),
    "a slow upload": (RECEIVED, "courier", REPLYING, "courier done", 36000),
    "a killed courier that Flower answered for": (
        *(RECEIVED, "courier", "courier killed", 60, REPLYING, SENT, 36000),
    ),
    "a reply that could not be sent": (
        *(RECEIVED, "courier", REPLYING, "courier done"),
        *("ERROR :     Failed to send message 4f: timed out", 36000),
    ),
}


@pytest.mark.parametrize("case", STUCK)
def test_a_message_without_reply_and_courier_for_90_seconds_is_lost(case: str) -> None:
    assert Story().tell(*STUCK[case])


@pytest.mark.parametrize("case", NOT_STUCK)
def test_what_is_under_way_or_answered_is_not_lost(case: str) -> None:
    assert not Story().tell(*NOT_STUCK[case])


def test_the_record_keeps_the_times_and_counts_restarts_across_processes(tmp_path: Path) -> None:
    file, clock = tmp_path / "messages.json", FakeClock(now=5000.0)
    for _ in range(2):
        record = MessageRecord(file, now=clock.now)
        record.read_line(RECEIVED)
        clock.sleep(90)
        record.restarting()
    record.read_line(RECEIVED)
    clock.sleep(3)
    record.read_line(SENT)

    assert MessageTimes.read(file) == MessageTimes(5180.0, 5183.0, 5180.0, 2)


UNREADABLE = {
    "none": None,
    "empty": "",
    "a list": "[]",
    "another field": '{"received": 1, "other": 2}',
    "an escape sequence": '{"received": "\\u001b[31mred"}',
    "not a time": '{"received": NaN}',
    "no time of this world": '{"received": 1e300}',
    "too long": " " * 2000 + '{"received": 1}',
    "half a restart": '{"restarts": 0.5}',
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=list(UNREADABLE))
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "messages.json"
    if content is not None:
        file.write_text(content)

    assert MessageTimes.read(file) is None
    assert MessageRecord(file).times == MessageTimes()


def test_a_pipe_in_place_of_the_record_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "messages.json")

    assert MessageTimes.read(tmp_path / "messages.json") is None


def test_connect_says_why_it_starts_the_supernode_again() -> None:
    explain = _explanation(Address("127.0.0.1", 1), "")

    assert explain(0, f"{LOST_MESSAGE}: restarting the SuperNode\nSuperNode terminated") == (
        "was ended: a message had no reply and no courier for 90 s"
    )
    assert explain(1, "something else") == ""


# --- with a real SuperNode ------------------------------------------------------------------------


class MovableClock(Clock):
    """Real time, which a test can move forward."""

    ahead = 0.0

    def now(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    with running_superlink(tmp_path_factory.mktemp("superlink")) as superlink:
        yield superlink


@pytest.mark.slow
@pytest.mark.timing
def test_a_supernode_whose_task_was_stolen_is_restarted_and_answers_again(
    superlink: SuperLink,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    clock, port, record = MovableClock(), free_port(), tmp_path / "messages.json"
    with Processes(tmp_path) as processes:
        for name, value in processes.environment.items():
            monkeypatch.setenv(name, value)
        before = superlink.online()
        runner = SuperNodeRunner(
            port, record, supernode_command(superlink.address, port), clock=clock
        )
        superlink.ask(superlink.new_node(before), "tell")
        thief = TaskSource(f"127.0.0.1:{port}", runner.secret)
        wait_until(lambda: thief.acquire() is not None)

        def pass_time() -> None:
            wait_until(lambda: record.exists())  # the runner has read that a message came
            clock.ahead = 100.0

        threading.Thread(target=pass_time, daemon=True).start()
        runner.run()

        assert f"WARNING : {LOST_MESSAGE}: restarting the SuperNode" in capfd.readouterr().out
        times = json.loads(record.read_text())
        assert (times["restarts"], times["answered"]) == (1, None)
        assert times["restarted"] == pytest.approx(time.time(), abs=600)
        (report,) = Node(superlink, processes).ask("tell")
        assert report["pid"] != os.getpid()
