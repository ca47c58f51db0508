"""Hostile code inside the containers: whatever it tries, it stays in, and stops nobody else.

In the supernode the coordinator may have shipped it; elsewhere it stands for a flaw in a library.
Each probe is shown to work in a container that is not protected.
"""

import json
from typing import Any

import pytest

from docker.local.federation import Federation, Project, docker, version
from tests.docker.probes import HERE, inside, inspect, is_healthy
from tests.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(3600)]

MIB = 1024 * 1024
# The Unix sockets that a container can connect to.
SOCKETS = {
    "agent": ["/hospital/socket/agent.sock"],
    "supernode": ["/exit/exit.sock", "/hospital/socket/agent.sock"],
    "forwarder": ["/exit/exit.sock"],
    "superlink": [],
    "proxy": [],
}


def project_of(service: str, federation: Federation) -> Project:
    is_coordinator = service in ("superlink", "proxy")
    return federation.coordinator if is_coordinator else federation.hospitals["Anna"]


def powers(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value and name != "sockets"}


@pytest.mark.parametrize("service", SOCKETS)
def test_hostile_code_gets_neither_more_power_nor_out(service: str, federation: Federation) -> None:
    found = inside(project_of(service, federation), service, "hostile_escape.py")
    assert powers(found) == {}
    assert found["sockets"] == SOCKETS[service]


def test_the_same_attempts_succeed_where_nothing_forbids_them(engine: None) -> None:
    code = (HERE / "hostile_escape.py").read_bytes()
    options = ["--rm", "-i", "--user=0", "--privileged", "--network=none"]
    image = ["--entrypoint=python", f"feddc/forwarder:{version()}", "-"]
    found = json.loads(docker("run", *options, *image, data=code))
    assert {"user", "mount", "network"} <= set(found["namespaces"])
    assert {"tmpfs", "proc"} <= set(found["mounts"])
    assert {"bpf", "syslog"} <= set(found["calls"])
    assert "mknod" in found["devices"]
    assert "/proc/sys/kernel/core_pattern" in found["kernel files"]
    assert found["root"]
    assert found["setuid files"]
    assert found["executed from /tmp"]


@pytest.mark.parametrize("service", ["supernode", "forwarder"])
@pytest.mark.parametrize("what", ["processes", "memory", "disk"])
def test_hostile_code_uses_up_its_own_container_only(
    what: str, service: str, hospital: Project
) -> None:
    before = inspect(hospital, service)
    limits = before["HostConfig"]

    got = inside(hospital, service, "hostile_exhaustion.py", what)

    if what == "processes":
        assert 0 < got < limits["PidsLimit"]
    if what == "memory":
        assert got["signal"] == -9
        assert 0 < got["MiB"] * MIB < limits["Memory"]
    if what == "disk":
        sizes = {
            "supernode": {"/tmp": 1024, "/dev/shm": 1},  # noqa: S108
            "forwarder": {"/tmp": 16, "/dev/shm": 1},  # noqa: S108
        }
        for place, size in sizes[service].items():  # the service's own files are there, too
            assert 0 < got.pop(place) <= size
        # The forwarder's own socket is in memory too; the supernode can't write there.
        assert got == ({} if service == "supernode" else {"/exit": 0})
    # Nothing else was hit: the service goes on, and so does the agent.
    for name in (service, "agent"):
        wait_until(lambda name=name: is_healthy(hospital, name), seconds=1200)
    after = inspect(hospital, service)
    assert after["State"]["StartedAt"] == before["State"]["StartedAt"]


@pytest.mark.parametrize("service", ["supernode", "forwarder"])
def test_a_container_cannot_make_any_number_of_files(service: str, hospital: Project) -> None:
    """Empty files take no space of a memory file system, but memory of the kernel."""
    assert 0 < inside(hospital, service, "hostile_exhaustion.py", "files") < 70_000


def test_the_agent_comes_first_when_the_machine_is_busy(hospital: Project) -> None:
    agent = inspect(hospital, "agent")["HostConfig"]
    for service in ("supernode", "forwarder"):
        host = inspect(hospital, service)["HostConfig"]
        assert 0 < host["CpuShares"] < (agent["CpuShares"] or 1024)
        assert host["OomScoreAdj"] > agent["OomScoreAdj"]


ASK_THE_SUPERLINK = """
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
plain = socket.create_connection(("127.0.0.1", 28000), 60)
link = context.wrap_socket(plain, server_hostname="localhost")
lines = [f"POST {sys.argv[2]} HTTP/1.1", "Host: localhost", "Content-Length: 0"]
lines += ["Content-Type: application/protobuf", "Connection: close", "", ""]
link.sendall("\\r\\n".join(lines).encode())
print(link.recv(1000).split()[1].decode())
"""


@pytest.mark.parametrize("path", ["/v1/control/list-runs", "/v1/runtime/acquire-task"])
def test_a_proxy_that_was_taken_over_cannot_start_a_run(path: str, federation: Federation) -> None:
    """Seen: it shares the SuperLink's loopback interface, and got the list of runs (200)."""
    command = ["python", "-c", ASK_THE_SUPERLINK, "/proxy/ca.crt", path]
    answer = federation.coordinator.execute("proxy", *command).decode()
    assert answer.strip() in {"401", "403"}
    # The coordinator's own commands, which have the secret, are served.
    assert b'"superlink": true' in federation.command("status", "--json")
