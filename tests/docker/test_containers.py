"""The containers as a hospital and a coordinator run them, looked at from inside.

Every check that something is impossible has a twin that shows the probe itself to work.
"""

import json

import pytest

from docker.local.accuracies import Accuracies, mean
from docker.local.federation import DOCKER, SETTINGS, Federation, Project, docker
from tests.docker.probes import Victim, elsewhere, execute, inside, inspect, is_healthy
from tests.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(3600)]

HOSPITAL = ("agent", "supernode", "forwarder")
COORDINATOR = ("superlink", "proxy", "network")
PATIENT = b"PATIENT-"


@pytest.fixture(params=[*HOSPITAL, *COORDINATOR])
def part(request: pytest.FixtureRequest, federation: Federation) -> tuple[Project, str]:
    service = str(request.param)
    is_hospital = service in HOSPITAL
    return (federation.hospitals["Anna"] if is_hospital else federation.coordinator), service


def test_every_container_is_hardened(part: tuple[Project, str]) -> None:
    facts = inspect(*part)
    host = facts["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert not host["Privileged"]
    assert not host["Devices"]
    assert host["PidMode"] == ""
    assert host["IpcMode"] == "private"
    assert host["Memory"] > 0
    assert host["PidsLimit"] > 0
    assert int(facts["Config"]["User"].split(":")[0]) > 10000
    wait_until(lambda: is_healthy(*part), seconds=1200)
    assert host["MemorySwap"] == host["Memory"]  # none of it in the machine's swap
    limits = {limit["Name"]: limit["Hard"] for limit in host["Ulimits"]}
    assert limits["core"] == 0
    assert 0 < limits["nofile"] <= 16384
    assert not any("docker.sock" in mount["Source"] for mount in facts["Mounts"])


def test_every_container_is_powerless_from_inside(part: tuple[Project, str]) -> None:
    project, service = part
    status = execute(project, service, "cat", "/proc/1/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[capabilities], 16) == 0
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2"
    assert "0" not in fields["Uid"].split()
    assert "0" not in fields["Gid"].split()


TRY_TO_WRITE = """
import json, os
said = []
for folder, _, _ in os.walk("/"):
    if folder.startswith(("/proc", "/sys", "/dev")):
        continue
    try:
        with open(os.path.join(folder, ".probe"), "w"):
            said.append(folder)
        os.unlink(os.path.join(folder, ".probe"))
    except OSError:
        pass
print(json.dumps(said))
"""


@pytest.mark.parametrize(
    ("service", "writable"),
    [
        ("agent", {"/tmp", "/hospital", "/hospital/state", "/hospital/transport"}),  # noqa: S108
        ("supernode", {"/tmp"}),  # noqa: S108
        ("forwarder", {"/tmp", "/exit"}),  # noqa: S108
    ],
)
def test_a_container_can_write_to_nothing_but_its_own(
    service: str, writable: set[str], hospital: Project
) -> None:
    found = json.loads(execute(hospital, service, "python", "-c", TRY_TO_WRITE))
    own = {folder for folder in found if not folder.startswith("/tmp/")}  # noqa: S108
    assert own - {"/hospital/socket"} == writable
    assert ("/hospital/socket" in own) == (service == "agent")


def test_agent_and_supernode_have_no_interface_but_loopback(hospital: Project) -> None:
    def interfaces(service: str) -> list[str]:
        return execute(hospital, service, "ls", "/sys/class/net").split()

    assert interfaces("agent") == ["lo"]
    assert interfaces("supernode") == ["lo"]
    assert len(interfaces("forwarder")) == 2
    for service in ("agent", "supernode"):
        assert list(inspect(hospital, service)["NetworkSettings"]["Networks"]) == ["none"]


def test_torch_is_where_training_is_and_not_where_the_courier_is(hospital: Project) -> None:
    look = "import importlib.util as u; print(u.find_spec('torch') is not None)"
    assert execute(hospital, "agent", "python", "-c", look).strip() == "True"
    for service in ("supernode", "forwarder"):
        assert execute(hospital, service, "python", "-c", look).strip() == "False"


def test_hostile_code_in_the_supernode_finds_neither_data_nor_keys(hospital: Project) -> None:
    secrets = {
        "identity": "/hospital/state/identity.key",
        "configuration": "/hospital/hospital.toml",
        "transport": "/hospital/transport/supernode.key",
    }
    hexed = {}
    for name, path in secrets.items():
        show = f"print(open({path!r}, 'rb').read().hex())"
        hexed[name] = execute(hospital, "agent", "python", "-c", show).strip()
    needles = {"patients": PATIENT.hex(), **hexed}

    def places(service: str, skip: str = "") -> dict[str, list[str]]:
        search = inside(hospital, service, "hostile_search.py", *needles.values(), skip=skip)
        assert search["looked"] > 1000
        return {name: search["found"][needle] for name, needle in needles.items()}

    # The same search, where the secrets are: it does find them.
    agent = places("agent", skip="/opt/feddc/lib")  # gigabytes of torch
    assert "/hospital/data/digits.csv" in agent["patients"]
    assert agent["identity"] == ["/hospital/state/identity.key"]
    assert agent["configuration"] == ["/hospital/hospital.toml"]
    supernode = places("supernode")
    assert supernode["patients"] == []
    assert supernode["identity"] == []
    assert supernode["configuration"] == []
    assert supernode["transport"] == ["/hospital/transport/supernode.key"]  # proves a connection
    assert places("forwarder") == {name: [] for name in needles}


def test_the_supernode_is_given_two_sockets_and_the_connections_key(hospital: Project) -> None:
    mounts = {mount["Destination"]: mount for mount in inspect(hospital, "supernode")["Mounts"]}
    assert set(mounts) - {"/tmp"} == {  # noqa: S108
        "/hospital/transport",
        "/hospital/socket",
        "/exit",
    }
    assert not any(mount["RW"] for place, mount in mounts.items() if place != "/tmp")  # noqa: S108
    shown = execute(hospital, "supernode", "find", "/hospital", "/exit", "-not", "-type", "d")
    assert set(shown.split()) == {
        "/hospital/transport/supernode.key",
        "/hospital/transport/coordinator.json",
        "/hospital/socket/agent.sock",
        "/exit/exit.sock",
    }


@pytest.mark.parametrize("service", ["supernode", "agent"])
def test_hostile_code_without_a_network_reaches_nobody(
    service: str, federation: Federation, hospital: Project, victim: Victim, machine: Victim
) -> None:
    """Shipped by the coordinator in the supernode, or brought in by hostile data in the agent."""
    described = json.loads(docker("network", "inspect", federation.network))[0]
    gateway = described["IPAM"]["Config"][0]["Gateway"]
    coordinator = next(
        container["IPv4Address"].split("/")[0]
        for container in described["Containers"].values()
        if container["Name"].startswith(federation.coordinator.name)
    )
    there = [
        [victim.address, victim.port],
        [gateway, machine.port],  # the machine, by its address in the containers' network
        [machine.address, machine.port],  # the machine, by its address in the LAN
    ]
    targets = {
        "tcp": [*there, [coordinator, 8443]],
        "udp": there,
        "names": ["victim"],
        "resolvers": ["127.0.0.11"],
    }
    ordinary = elsewhere(federation.network, "hostile_network.py", json.dumps(targets))
    wanted = {f"tcp {host}:{port} None" for host, port in targets["tcp"]}
    # The machine answers datagrams to its LAN address from another of its own: see below.
    wanted |= {f"udp {host}:{port} None" for host, port in there[:2]}
    wanted |= {"name victim", "dns 127.0.0.11 victim"}
    assert wanted <= set(ordinary["reached"])
    assert {"raw", "packet"} <= set(ordinary["powers"])
    before = len(victim.datagrams()), len(machine.datagrams())
    assert before[1] >= 2 * len(ordinary["interfaces"])  # to both addresses, each way it tried

    everywhere = [["1.1.1.1", 53], ["8.8.8.8", 53], ["192.0.2.1", 443], ["fe80::1", 80]]
    more = {
        "tcp": [*targets["tcp"], *everywhere, ["169.254.169.254", 80]],
        "udp": [*there, *everywhere, [victim.address, 53]],
        "names": ["victim", "coordinator.test", "example.org"],
        "resolvers": ["127.0.0.11", "127.0.0.1", "1.1.1.1", victim.address, gateway],
    }
    hostile = inside(hospital, service, "hostile_network.py", json.dumps(more))
    assert hostile["interfaces"] == ["lo"]
    assert hostile["routes"] == []
    assert hostile["reached"] == []
    assert hostile["powers"] == []
    # Not a single datagram got through either, answered or not.
    assert (len(victim.datagrams()), len(machine.datagrams())) == before


ASK = """
import json, socket, ssl, sys
path, authority, name, request = sys.argv[1:]
context = ssl.create_default_context(cadata=json.load(open(authority))["certificate"])
link = socket.socket(socket.AF_UNIX)
link.settimeout(20)
link.connect(path)
if name:
    link = context.wrap_socket(link, server_hostname=name)
link.sendall(request.encode().decode("unicode_escape").encode())
answer = b""
while data := link.recv(1000):
    answer += data
print(answer.decode(errors="replace"))
"""


def through_upstream(hospital: Project, request: str, name: str = "127.0.0.1") -> str:
    """Send a request to the supernode's upstream socket, inside TLS unless `name` is empty."""
    place = ["/exit/exit.sock", "/hospital/transport/coordinator.json"]
    return execute(hospital, "supernode", "python", "-c", ASK, *place, name, request)


def http(method: str, path: str, host: str = "localhost") -> str:
    return (
        f"{method} {path} HTTP/1.1\\r\\nHost: {host}\\r\\nContent-Length: 0\\r\\n"
        "Connection: close\\r\\n\\r\\n"
    )


def test_the_upstream_socket_reaches_the_coordinator_alone(
    hospital: Project, victim: Victim
) -> None:
    assert " 404 " in through_upstream(hospital, http("GET", "/")).splitlines()[0]
    place = f"{victim.address}:{victim.port}"
    for method, path in (("CONNECT", place), ("GET", f"http://{place}/")):
        for name in ("127.0.0.1", ""):
            answer = through_upstream(hospital, http(method, path, place), name)
            assert "victim" not in answer
            assert answer.split()[1].startswith("4")


@pytest.mark.parametrize("area", ["control", "runtime"])
def test_from_outside_flowers_other_interfaces_are_refused(
    area: str, hospital: Project, federation: Federation
) -> None:
    for path in (f"/v1/{area}/list-runs", f"/v1/fleet/../{area}/list-runs", f"//v1/{area}/x"):
        answer = through_upstream(hospital, http("POST", path))
        assert answer.split()[1] in {"400", "404"}
    # The hospitals' own interface is forwarded; the SuperLink refuses a request without signature.
    answer = through_upstream(hospital, http("POST", "/v1/fleet/pull-messages"))
    assert answer.split()[1] not in {"404", "502"}


def test_the_superlink_itself_listens_for_its_own_machine_only(federation: Federation) -> None:
    look = "import socket; socket.create_connection(('127.0.0.1', 28000), 5); print('there')"
    assert "there" in execute(federation.coordinator, "superlink", "python", "-c", look)
    targets = {
        "tcp": [["coordinator.test", 28000], ["coordinator.test", 8443]],
        "udp": [],
        "names": [],
        "resolvers": [],
    }
    probe = elsewhere(federation.network, "hostile_network.py", json.dumps(targets))
    assert {name.split()[1] for name in probe["reached"]} == {"coordinator.test:8443"}


def test_the_proxy_sees_its_own_key_and_no_other(federation: Federation) -> None:
    show = "print(open('/study/{}', 'rb').read().hex())"
    needles = [
        execute(federation.coordinator, "superlink", "python", "-c", show.format(path)).strip()
        for path in ("identity.key", "tls/ca.key", "tls/server.key")
    ]
    search = inside(federation.coordinator, "proxy", "hostile_search.py", *needles)
    assert [search["found"][needle] for needle in needles] == [[], [], ["/proxy/server.key"]]


def test_of_the_coordinator_only_the_proxys_port_is_published(engine: None) -> None:
    project = Project("x", (DOCKER / "coordinator" / "compose.yaml",), {"FEDDC_PORT": "8443"})
    services = json.loads(project.compose("config", "--format", "json"))["services"]
    published = {name: service.get("ports", []) for name, service in services.items()}
    assert published["superlink"] == published["proxy"] == []
    assert [port["published"] for port in published["network"]] == ["8443"]


def test_the_three_hospitals_train_a_model_better_than_each_ones_own(
    federation: Federation,
) -> None:
    """Runs last: everything above was tested in a federation that works."""
    outcome = federation.run(SETTINGS)
    assert outcome["status"] == "completed"
    assert outcome["sealed"] is True
    assert (outcome["legs"], outcome["hand_overs"], outcome["aggregations"]) == (12, 8, 4)
    assert (outcome["lost_chains"], outcome["missed_rounds"]) == (0, 0)
    audit = execute(federation.hospitals["Anna"], "agent", "feddc", "hospital", "audit")
    # Four requests besides the legs, two more for each secure sum, three for the closing one.
    lines = 4 + outcome["legs"] + 2 * outcome["aggregations"] + 3
    assert f"{lines} lines, complete and in order." in audit
    accuracies = Accuracies(
        federation.train_alone(SETTINGS), federation.aggregate_accuracies(SETTINGS, outcome)
    )
    accuracies.check()
    assert outcome["mean_held_out_accuracy"] is None  # no figure leaves a hospital
    assert mean(accuracies.aggregate) > mean(accuracies.alone)
