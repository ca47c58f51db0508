"""The courier: it carries bytes, holds nothing that could read them, and fails by name."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from client_app import courier, simulated_hospital
from lab.flower.in_process import InProcessGrid
from protocol.message_bytes import decode_signed_reply, sign_request
from protocol.messages import ANY_HOSPITAL, Hello, Introduction, MessageError
from protocol.records import from_records, to_records
from protocol.study.simulated_study import simulated_study
from server_app.config.run_config import Settings

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _sender() -> None:
    # Flower gives a message the identity of the task that sends it.
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def context(**node_config: Any) -> Context:
    config = {key.replace("_", "-"): value for key, value in node_config.items()}
    return Context(
        run_id=1,
        node_id=100,
        node_config=config,
        state=RecordDict(),
        run_config=dict(Settings.defaults()),
    )


def message(content: RecordDict, kind: str = "train") -> Message:
    return Message(content, 100, kind)


def test_importing_the_courier_brings_in_nothing_that_could_read_a_model() -> None:
    code = "import json, sys\nimport client_app.courier\nprint(json.dumps(sorted(sys.modules)))\n"
    environment = {"PYTHONPATH": str(PROJECT), "FLWR_TELEMETRY_ENABLED": "0"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(result.stdout.splitlines()[-1]))

    assert "client_app.courier" in loaded
    packages = {name.split(".")[0] for name in loaded}
    assert not packages & {"torch", "torchvision", "sklearn", "learning", "server_app"}
    assert not loaded & {
        "client_app.hospital.hospital",
        "client_app.simulated_hospital",
        "client_app.hospital.leg",
    }
    assert not loaded & {
        "protocol.model_bytes",
        "protocol.sealing.envelope",
        "protocol.sealing.keys",
    }


def test_it_carries_the_very_bytes_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def answer(data: bytes, where: Context) -> bytes:
        seen.append((data, where))
        return b"\x00 answer \xff"

    monkeypatch.setattr(simulated_hospital, "answer", answer)
    here = context(partition_id=0, num_partitions=2)

    reply = courier.app(message(to_records(b"request \x00\xff")), here)

    assert seen == [(b"request \x00\xff", here)]
    assert from_records(reply.content) == b"\x00 answer \xff"
    assert list(reply.content) == ["feddc"]


def test_it_reaches_the_simulated_hospital_of_its_node() -> None:
    here = context(partition_id=3, num_partitions=10)
    study = simulated_study(0, ["hospital-01", "hospital-02"])
    hello = sign_request(
        Hello(), study.coordinator, study=study.roster.study, hospital=ANY_HOSPITAL
    )

    reply = courier.app(message(to_records(hello)), here)

    introduction = decode_signed_reply(from_records(reply.content))
    assert isinstance(introduction, Introduction)
    assert introduction.hospital == "hospital-04"


def test_a_node_without_a_hospital_is_an_error_that_names_what_to_set() -> None:
    with pytest.raises(RuntimeError, match=r"no hospital configured.*agent-socket.*partition-id"):
        courier.app(message(to_records(b"request")), context())


def test_a_node_with_an_agent_never_falls_back_on_simulated_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(data: bytes, where: Context) -> bytes:
        pytest.fail("a simulated hospital was asked")

    monkeypatch.setattr(simulated_hospital, "answer", answer)
    monkeypatch.setattr(courier, "ask", lambda path, data: f"{path}: ".encode() + data)
    here = context(agent_socket="/run/agent.sock", partition_id=0, num_partitions=2)

    reply = courier.app(message(to_records(b"request")), here)

    assert from_records(reply.content) == b"/run/agent.sock: request"


GARBAGE = {
    "nothing": RecordDict(),
    "settings": RecordDict({"feddc": ConfigRecord({"message": b"x"})}),
    "other arrays": RecordDict(
        {"arrays": ArrayRecord({"w": Array(dtype="uint8", shape=(1,), stype="x", data=b"x")})}
    ),
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_records_that_are_no_message_never_reach_the_hospital(
    content: RecordDict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(data: bytes, where: Context) -> bytes:
        pytest.fail("the hospital was asked")

    monkeypatch.setattr(simulated_hospital, "answer", answer)
    with pytest.raises(MessageError, match="not a FedDC message"):
        courier.app(message(content), context(partition_id=0, num_partitions=2))


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_what_fails_at_a_node_is_an_error_reply_and_not_the_end_of_the_run(
    content: RecordDict,
) -> None:
    grid = InProcessGrid(courier.app, 2, Settings.defaults())

    (reply,) = grid.send_and_receive([message(content)])

    assert reply.has_error()
    assert reply.error.code == 2  # Flower's "the ClientApp raised"


def test_it_answers_training_messages_only() -> None:
    here = context(partition_id=0, num_partitions=2)
    for kind in ("evaluate", "query"):
        with pytest.raises(ValueError, match=r"No .* function registered|not.*registered"):
            courier.app(message(to_records(b"request"), kind), here)
