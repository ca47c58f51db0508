"""Signals: what arrives within a block, what an ignored one does, and what holds afterwards."""

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from operation.processes import signals


@pytest.fixture(params=signals.ENDING, ids=lambda number: signal.Signals(number).name)
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal with a handler: where the tests are a shell's background job, SIGINT is ignored."""
    handler = signal.signal(request.param, signal.default_int_handler)
    yield int(request.param)
    signal.signal(request.param, handler)


@pytest.fixture
def before(number: int) -> Callable[[], object]:
    """A handler of the signal's that must be back after each block."""
    handler = signal.getsignal(number)
    return lambda: signal.getsignal(number) is handler


def test_signals_are_collected_within_the_block(number: int, before: Callable[[], object]) -> None:
    with signals.collected() as arrived:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)

    assert arrived == [number, number]
    assert before()


def test_a_handler_may_raise(number: int, before: Callable[[], object]) -> None:
    def stop(caught: int, frame: object) -> None:
        raise RuntimeError(caught)

    with pytest.raises(RuntimeError, match=f"^{number}$"), signals.caught(stop):
        os.kill(os.getpid(), number)

    assert before()


def test_a_signal_that_was_ignored_stays_so(number: int) -> None:
    handler = signal.signal(number, signal.SIG_IGN)
    try:
        with signals.collected() as arrived:
            os.kill(os.getpid(), number)

        assert arrived == []
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, handler)


def test_cleaning_up_is_not_interrupted(number: int, before: Callable[[], object]) -> None:
    with signals.collected() as arrived, signals.ignored():
        os.kill(os.getpid(), number)

    assert arrived == []
    assert before()


def test_cleaning_up_in_a_thread_changes_no_handler() -> None:
    seen = []

    def clean_up() -> None:
        with signals.ignored():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=clean_up)
    thread.start()
    thread.join()

    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_defaults_are_restored(number: int) -> None:
    handler = signal.signal(number, signal.SIG_IGN)
    try:
        signals.restore_defaults()

        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
