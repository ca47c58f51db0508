"""The waiting room in its place: with the real proxy, SuperLink and SuperNode."""

import os
import signal
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx

from server_app.services import background
from server_app.services.supervisor import PARTS
from server_app.services.udp_notifier import LoopbackBell
from server_app.study.registration import control, register_members
from server_app.study.study_folder import Study
from tests.processes import wait_until
from tests.server_app.conftest import Coordinator


def test_a_supernode_waits_there_and_the_proxy_does_without_it(
    new_coordinator: Callable[..., Coordinator], nginx: str
) -> None:
    coordinator = new_coordinator()
    study = coordinator.study
    place = coordinator.enrol("Mercy")
    background.start(study, PARTS)
    register_members(study)
    with coordinator.connected(place) as node:
        node.wait_for("SuperNode ID")
        (registered,) = control(study).nodes()
        bell = LoopbackBell(study.waiting_room)
        bell.ring(registered.node_id)  # who has rung is told of the next arrival
        assert bell.wait(60) == {registered.node_id}

    room = waiting_rooms(study)
    assert len(room) == 1
    os.kill(room[0], signal.SIGKILL)
    # Nobody's signature: the SuperLink itself refuses, for want of a waiting room.
    assert ask(study) == 401
    wait_until(lambda: waiting_rooms(study) not in ([], room))
    wait_until(lambda: ask(study) == 401)


def ask(study: Study) -> int:
    return httpx.post(
        f"https://{study.address}/v1/fleet/pull-messages",
        verify=ssl.create_default_context(cafile=str(study.authority)),
        headers={"content-type": "application/protobuf"},
        timeout=30,
        trust_env=False,
    ).status_code


def waiting_rooms(study: Study) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "server_app.services.long_poll_server" in line and str(study.waiting_room) in line:
            found.append(int(entry.name))
    return found
