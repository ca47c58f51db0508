"""Another user of the same machine, without any rights, at the hospital's and the coordinator's.

Flower's programs talk to each other through ports on the loopback interface, which every user of
the machine can reach. All of this is tried as `nobody`, with real processes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.proto.runtime_pb2 import AcquireTaskRequest, GetNodesRequest
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from client_app.connect.supernode_output import SuperNodeOutput
from client_app.connect.supernode_runner import SuperNodeRunner
from operation.flower.control_api import ControlApi, pack
from operation.flower.tasks import TaskSource
from server_app.experiment.experiment_control import server_apps
from server_app.study.registration import control
from server_app.study.study_folder import Study
from tests.attacks.other_user import as_another_user, command_lines, needs_root, why_unreadable
from tests.client_app.running_supernode import SuperLink, running_superlink, supernode_command
from tests.processes import free_port, wait_until
from tests.server_app.conftest import (  # noqa: F401 (fixtures)
    Coordinator,
    coordinator,
    new_coordinator,
    nginx,
)

pytestmark = [needs_root, pytest.mark.timing, pytest.mark.slow]

REFUSED = 401  # HTTP's "not authenticated"


def status_of(request: Callable[[], object]) -> int:
    """Return the HTTP status with which a request is answered."""
    try:
        request()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 200


def runtime(address: str, authority: bytes | None, *interceptors: Any) -> RuntimeHttpClient:
    return RuntimeHttpClient.from_server_address(
        address,
        insecure=authority is None,
        root_certificates=authority,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec"), *interceptors],
    )


def takes_task(address: str, kind: str, authority: bytes | None = None) -> int:
    """Ask for a task, as any program can; return the HTTP status."""
    request = AcquireTaskRequest(supported_task_types=[kind])
    return status_of(lambda: runtime(address, authority).AcquireTask(request))


# --- at a hospital --------------------------------------------------------------------------------


@pytest.fixture
def superlink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SuperLink]:
    with running_superlink(tmp_path) as superlink:
        for name, value in superlink.processes.environment.items():
            monkeypatch.setenv(name, value)
        yield superlink


def test_another_user_gets_no_task_of_the_supernode(superlink: SuperLink, tmp_path: Path) -> None:
    """Took six tasks and sent six forged models in two hospitals' names; now none is given."""
    before, port, lines = superlink.online(), free_port(), list[str]()
    runner = SuperNodeRunner(
        port, tmp_path / "messages.json", supernode_command(superlink.address, port)
    )
    with runner.supernode as supernode:
        output, address = SuperNodeOutput(supernode, lines.append), f"127.0.0.1:{port}"
        superlink.ask(superlink.new_node(before), "tell")

        def is_received() -> bool:  # its task waits for whoever asks first
            output.copy(0.1)
            return any("Received successfully" in line for line in lines)

        wait_until(is_received)
        status = as_another_user(lambda: takes_task(address, "flwr-clientapp"))
        guessed = as_another_user(
            lambda: status_of(lambda: TaskSource(address, b"a guessed secret").acquire())
        )

        assert (status, guessed) == (REFUSED, REFUSED)
        task = TaskSource(address, runner.secret).acquire()
        assert task is not None  # so there was one to take
        assert task.is_for_a_clientapp
        supernode.kill()


# --- at the coordinator's -------------------------------------------------------------------------


def intruder(study: Study, authority: bytes) -> ControlApi:
    return ControlApi(study.superlink_address, authority=authority)


def bundle() -> bytes:
    return pack(server_app="large_message:server", client_app="large_message:client", config={})


def new_key() -> bytes:
    key = generate_private_key(SECP384R1()).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


CALLS: dict[str, Callable[[ControlApi], object]] = {
    "list runs": lambda api: api.status(1),
    "start a run": lambda api: api.start_run(bundle()),
    "stop a run": lambda api: api.stop_run(1),
    "read a run's log": lambda api: list(api.log(1)),
    "list the hospitals": lambda api: api.nodes(),
    "register a node": lambda api: api.register_node("intruder", new_key()),
    "unregister a node": lambda api: api.unregister_node(1),
}


@pytest.mark.parametrize("call", CALLS)
def test_another_user_cannot_use_the_control_api(call: str, coordinator: Coordinator) -> None:  # noqa: F811
    """Started a ServerApp that ran as the coordinator and read its identity.key."""
    study = coordinator.study
    authority, nodes = study.authority.read_bytes(), control(study).nodes()

    status = as_another_user(lambda: status_of(lambda: CALLS[call](intruder(study, authority))))

    assert status == REFUSED
    assert control(study).nodes() == nodes  # the owner is served, and nothing has changed
    assert server_apps(study) == []


def test_another_user_gets_no_task_of_the_superlink(coordinator: Coordinator) -> None:  # noqa: F811
    """The task of a ServerApp, with which all models can be read, was given to whoever asked."""
    study = coordinator.study
    authority = study.authority.read_bytes()

    status = as_another_user(
        lambda: takes_task(study.superlink_address, "flwr-serverapp", authority)
    )

    assert status == REFUSED


def test_another_user_finds_neither_the_secret_nor_a_task_s_token(
    coordinator: Coordinator,  # noqa: F811
) -> None:
    """The ServerApp's token stood on its command line, and was accepted from anybody."""
    study = coordinator.study
    authority, api = study.authority.read_bytes(), control(study)
    study.folder.parent.chmod(0o755)  # as if it were in a home that others may enter
    run = api.start_run(bundle())  # waits for hospitals, of which none is connected
    wait_until(lambda: bool(server_apps(study)))
    (token_file,) = study.flower_home.glob("task-*")

    def answered(token: str) -> bool:
        client = runtime(study.superlink_address, authority, RuntimeTokenHttpInterceptor(token))
        return status_of(lambda: client.GetNodes(GetNodesRequest())) == 200

    def search() -> list[str]:
        words = {word for line in command_lines() for word in line if word.isalnum()}
        return [word for word in words if len(word) >= 32 and answered(word)]

    assert answered(token_file.read_text())  # so it is a token that lets its holder in
    assert as_another_user(search) == []
    private = [token_file, study.superlink_secret, study.identity_file]
    told = as_another_user(lambda: [why_unreadable(file) for file in private])
    assert told == ["PermissionError"] * len(private)
    api.stop_run(run)
    wait_until(lambda: not list(study.flower_home.glob("task-*")))
