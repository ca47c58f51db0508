"""Long polling with the real proxy, SuperLink and SuperNode."""

import os
import signal
import ssl
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from server_app.services import background
from server_app.services.supervisor import PARTS
from server_app.services.udp_notifier import UdpNotifier
from server_app.study.registration import control, register_members
from server_app.study.study_folder import Study
from tests.processes import wait_until
from tests.server_app.conftest import Coordinator

pytestmark = [pytest.mark.timing, pytest.mark.slow]


def test_a_supernodes_poll_is_held_and_the_proxy_works_without_the_server(
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
        notifier = UdpNotifier(study.long_poll_address)
        notifier.message_sent(registered.node_id)  # then the next poll is reported
        assert notifier.wait(180) == {registered.node_id}

    servers = long_poll_servers(study)
    assert len(servers) == 1
    os.kill(servers[0], signal.SIGKILL)
    # Without a signature and without the long-poll server, the SuperLink itself refuses.
    assert ask(study) == 401
    wait_until(lambda: long_poll_servers(study) not in ([], servers))
    wait_until(lambda: ask(study) == 401)


def ask(study: Study) -> int:
    return httpx.post(
        f"https://{study.address}/v1/fleet/pull-messages",
        verify=ssl.create_default_context(cafile=str(study.authority)),
        headers={"content-type": "application/protobuf"},
        timeout=120,
        trust_env=False,
    ).status_code


def long_poll_servers(study: Study) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "server_app.services.long_poll_server" in line and str(study.long_poll_address) in line:
            found.append(int(entry.name))
    return found
