"""SuperLink and proxy as real processes: up and down, started again, and that nothing is left."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from operation import files
from operation.processes import process_group
from server_app.services import background, supervisor
from server_app.services.supervisor import PARTS, ServiceError, serve
from server_app.study.registration import control
from tests.fake_clock import FakeClock
from tests.processes import wait_until
from tests.server_app.conftest import Coordinator

pytestmark = pytest.mark.timing


def test_up_twice_says_so_and_starts_nothing(coordinator: Coordinator) -> None:
    before = background.running(coordinator.study)

    done = coordinator.feddc("up")

    assert done.returncode == 0
    assert "already up" in done.stdout
    assert background.running(coordinator.study) == before


@pytest.mark.slow
def test_a_killed_superlink_and_proxy_are_started_again(coordinator: Coordinator) -> None:
    before = background.running(coordinator.study)
    for part in PARTS:
        os.kill(before[part], signal.SIGKILL)
    wait_until(lambda: not background.answers(coordinator.study, "superlink"))

    wait_until(lambda: all(background.answers(coordinator.study, part) for part in PARTS))

    after = background.running(coordinator.study)
    assert after["supervisor"] == before["supervisor"]
    assert after["superlink"] != before["superlink"]
    assert {node.name for node in control(coordinator.study).nodes()} >= {"Mercy", "Köln Süd"}


def test_the_log_is_json_and_has_no_secret(coordinator: Coordinator) -> None:
    text = (coordinator.study.logs / "coordinator.jsonl").read_text()

    assert {json.loads(line)["source"] for line in text.splitlines()} >= {"superlink", "proxy"}
    assert coordinator.study.identity_file.read_bytes().hex() not in text


@pytest.mark.slow
def test_a_killed_supervisor_leaves_nothing_and_up_works_again(
    nginx: str, new_coordinator: Callable[[], Coordinator]
) -> None:
    made = new_coordinator()
    assert made.feddc("up").returncode == 0
    pids = background.running(made.study)
    os.kill(pids["supervisor"], signal.SIGKILL)
    wait_until(lambda: all(not Path(f"/proc/{pids[p]}").exists() for p in PARTS))
    assert background.running(made.study) == {}

    assert made.feddc("up").returncode == 0
    assert made.feddc("down").returncode == 0
    assert background.running(made.study) == {}
    assert process_group.command_lines(made.study.flower_home) == []
    assert "was not up" in made.feddc("down").stdout


@pytest.mark.slow
def test_in_a_container_members_are_registered_too(
    new_coordinator: Callable[[], Coordinator],
) -> None:
    made = new_coordinator()
    made.enrol("Mercy")
    command = [sys.executable, "-m", "operation.cli", "coordinator", "up", "--foreground"]
    process = subprocess.Popen(
        [*command, "--only", "superlink", "--study", str(made.study.folder)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "connect" in line)
        assert "May connect from now on: Mercy." in line
        assert [node.name for node in control(made.study).nodes()] == ["Mercy"]
        assert not background.answers(made.study, "proxy")
    finally:
        process.terminate()
        process.communicate(timeout=180)
    assert process.returncode == 0
    assert process_group.command_lines(made.study.flower_home) == []


@pytest.mark.parametrize("key", ["internal-port", "listen"])
def test_a_taken_port_is_said_before_anything_starts(
    key: str, nginx: str, new_coordinator: Callable[[], Coordinator]
) -> None:
    made = new_coordinator()
    port = made.study.file.internal_port if key == "internal-port" else made.study.address.port
    with socket.create_server(("127.0.0.1", port)):
        done = made.feddc("up")

    assert done.returncode == 1
    assert f"change {key} in study.toml" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert background.running(made.study) == {}


def test_services_that_do_not_answer_are_given_up_after_ninety_seconds(
    new_coordinator: Callable[[], Coordinator],
) -> None:
    study, clock = new_coordinator().study, FakeClock()
    began = clock.now()

    with pytest.raises(ServiceError, match="no answer after 90 s; stopped again"):
        background.wait_until_it_answers(study, PARTS, clock=clock)

    assert 90 < clock.now() - began < 91


def test_without_nginx_up_says_what_to_install(
    new_coordinator: Callable[[], Coordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    from server_app.services import nginx

    monkeypatch.setattr(nginx.shutil, "which", lambda *_, **__: None)  # type: ignore[attr-defined]

    with pytest.raises(nginx.ProxyError, match="apt-get install nginx-light"):
        background.start(new_coordinator().study, PARTS)


def test_a_file_system_that_keeps_no_permissions_is_refused(
    new_coordinator: Callable[[], Coordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = new_coordinator().study
    monkeypatch.setattr(files, "is_private", lambda file: False)  # as on a USB stick

    with pytest.raises(ServiceError, match=f"{study.superlink_secret}: other users .* move the"):
        serve(study, ["superlink"], terminal=False)

    assert background.running(study) == {}


def test_every_start_of_the_superlink_has_a_new_secret_for_its_owner_alone(
    new_coordinator: Callable[[], Coordinator],
) -> None:
    study = new_coordinator().study
    made = []
    for _ in range(2):
        supervisor._superlink(study)
        made.append(study.superlink_secret.read_text())

    assert len(set(made)) == 2
    assert all(len(bytes.fromhex(secret)) == 32 for secret in made)
    assert files.is_private(study.superlink_secret)
    assert study.superlink.stat().st_mode & 0o077 == 0
