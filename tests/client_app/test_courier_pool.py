"""The courier pool with a real SuperNode: notices when Flower has changed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_app.connect.courier_pool import CourierPool
from client_app.connect.watchdog import Watchdog
from tests.client_app.running_supernode import Node, Processes, SuperLink, running_superlink
from tests.fake_clock import FakeClock
from tests.processes import children, free_port, is_alive, wait_until

pytestmark = pytest.mark.timing

RAISED, CRASHED = 2, 8  # Flower's error codes


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuperLink]:
    with running_superlink(tmp_path_factory.mktemp("superlink")) as superlink:
        yield superlink


@pytest.fixture
def node(superlink: SuperLink, tmp_path: Path) -> Iterator[Node]:
    with Processes(tmp_path) as processes:
        yield Node(superlink, processes)


@pytest.mark.slow
def test_every_message_gets_a_process_of_its_own_forked_from_the_runner(node: Node) -> None:
    first, second, failed, last = node.ask("tell", "tell", "raise", "tell")

    assert {report["parent"] for report in (first, second, last)} == {node.runner}
    assert len({report["pid"] for report in (first, second, last)}) == 3
    assert not any(report["torch"] for report in (first, second, last))
    assert failed == RAISED
    wait_until(lambda: children(node.runner) == [node.supernode])  # none is left


@pytest.mark.slow
def test_a_killed_courier_is_an_error_and_the_next_message_is_answered(node: Node) -> None:
    crashed, report = node.ask("die", "tell")

    assert crashed == CRASHED
    assert report["parent"] == node.runner
    assert "a courier was killed (SIGKILL)" in node.log()


@pytest.mark.slow
def test_the_runner_ends_with_its_supernode(node: Node) -> None:
    os.kill(node.supernode, signal.SIGKILL)

    assert node.parent.wait(120) == 128 + signal.SIGKILL


@pytest.mark.slow
def test_supernode_and_couriers_end_with_their_runner(node: Node) -> None:
    courier = node.hanging_courier()

    os.kill(node.runner, signal.SIGKILL)

    wait_until(lambda: not is_alive(node.supernode))
    wait_until(lambda: not is_alive(courier))


@pytest.mark.slow
def test_a_signal_lets_the_supernode_deactivate_its_node_and_leaves_no_courier(node: Node) -> None:
    courier = node.hanging_courier()

    os.kill(node.runner, signal.SIGTERM)

    node.parent.wait(120)
    assert "SuperNode terminated gracefully" in node.log()
    assert not node.is_online
    wait_until(lambda: not is_alive(courier))


@pytest.mark.slow
def test_a_runner_whose_parent_was_killed_ends_with_supernode_and_couriers(node: Node) -> None:
    courier = node.hanging_courier()

    node.parent.kill()

    wait_until(lambda: not is_alive(courier))
    wait_until(lambda: not is_alive(node.supernode))
    wait_until(lambda: not is_alive(node.runner))


# --- without a SuperNode --------------------------------------------------------------------------


def test_the_pause_between_polls_follows_the_length_of_a_leg() -> None:
    clock = FakeClock()
    pool = CourierPool(free_port(), b"secret", Watchdog(clock), clock)

    pauses = []
    for seconds in (0, 2, 2, 100):
        clock.sleep(seconds)
        pauses.append(pool.pause)

    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.5])
