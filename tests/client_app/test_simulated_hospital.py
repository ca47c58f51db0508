"""Simulated hospitals: the same answers as the hospital's own code, wherever they are given."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.common.serde import context_from_proto, context_to_proto
from flwr.proto.message_pb2 import Context as ContextProto

from client_app import simulated_hospital
from client_app.simulated_hospital import ContextState, answer
from learning.data import DataError
from learning.local_data import load_dataset, load_partitions
from learning.trainer import Network, TaskSpec
from operation.config import SettingsError
from protocol.descriptor import Descriptor
from protocol.message_bytes import decode_signed_reply, sign_request
from protocol.messages import (
    ANY_HOSPITAL,
    Announcement,
    Carries,
    Hello,
    Introduction,
    Reply,
    Request,
    SetUp,
    Trained,
    TrainLeg,
)
from protocol.model_bytes import ModelState
from protocol.study.simulated_study import SimulatedStudy, simulated_study
from server_app.config.run_config import Settings

PROJECT = Path(__file__).resolve().parents[2]
HOSPITALS = 4
SETTINGS = Settings.from_run_config(
    {
        "dataset": "breast-cancer",
        "examples": 6,
        "held-out": 3,
        "hospitals": HOSPITALS,
        "model-options": '{"hidden": [4]}',
        "optimizer": "adam",
        "optimizer-state": "kept",
        "batch-size": 3,
        "seed": 5,
    },
    source="test",
)


def context(position: int, **changes: Any) -> Context:
    config = {key.replace("_", "-"): value for key, value in changes.items()}
    return Context(
        run_id=1,
        node_id=100 + position,
        node_config={"partition-id": position, "num-partitions": HOSPITALS},
        state=RecordDict(),
        run_config=dict(SETTINGS.as_config() | config),
    )


def study() -> SimulatedStudy:
    return simulated_study(
        5, [partition.name for partition in load_partitions(SETTINGS.local, HOSPITALS, 5)]
    )


def signed(request: Request, hospital: str) -> bytes:
    here = study()
    return sign_request(request, here.coordinator, study=here.roster.study, hospital=hospital)


def hello() -> bytes:
    return signed(Hello(), ANY_HOSPITAL)


def requests(position: int) -> list[bytes]:
    """Return a set-up and three legs, of which each needs what the ones before left behind."""
    dataset = load_dataset(SETTINGS.local, 5)
    network = Network(SETTINGS.training, TaskSpec(dataset.shape, len(dataset.classes)), seed=1)
    model = ModelState(*network.arrays()).to_bytes()
    agreed = Descriptor(
        experiment="e1",
        rounds=20,
        daisy_period=None,
        aggregation_period=2,
        init="shared",
        first_model=hashlib.sha256(model).digest(),
        first_model_is_given=True,
        shape=dataset.shape,
        classes=len(dataset.classes),
        training=SETTINGS.training.as_config() | {"proximal-mu": 0.5},
        training_seed=bytes(32),
        sealed=False,
        roster=study().roster.digest,
    )
    legs = [
        TrainLeg(
            experiment="e1",
            leg=number,
            first_round=2 * number - 2,
            local_rounds=2,
            carries=Carries.AGGREGATE,
            recipient=None,
            payload=model,
        )
        for number in (1, 2, 3)
    ]
    first = SetUp(experiment="e1", payload=agreed.to_bytes())
    return [signed(request, study().roster.names[position]) for request in (first, *legs)]


def plain(reply: bytes) -> Reply:
    """Return a reply without what differs each time: the audit trail's time, a fresh key."""
    message = decode_signed_reply(reply)
    told = {"audit": None, "payload": b""} if isinstance(message, Announcement) else {"audit": None}
    return message.model_copy(update=told)


def carried(here: Context) -> Context:
    """Return the context as Flower brings it to another process."""
    sent = context_to_proto(here).SerializeToString()
    return context_from_proto(ContextProto.FromString(sent))


def test_it_is_the_hospital_whose_partition_and_identity_it_simulates() -> None:
    partitions = load_partitions(SETTINGS.local, HOSPITALS, 5)
    for position, partition in enumerate(partitions):
        reply = decode_signed_reply(answer(hello(), context(position)))

        assert isinstance(reply, Introduction)
        assert reply.hospital == partition.name == f"hospital-0{position + 1}"
        assert reply.audit is not None
        assert reply.audit.is_by(study().identities[partition.name].public)


def test_every_node_is_a_hospital_of_its_own() -> None:
    replies = []
    for position in range(HOSPITALS):
        here, (first, *legs) = context(position), requests(position)
        assert plain(answer(first, here)) == Announcement(examples=6)
        trained = decode_signed_reply(answer(legs[0], here))
        assert isinstance(trained, Trained)
        replies.append(trained.payload)
    assert len(set(replies)) == HOSPITALS


def test_nodes_may_be_served_in_turn_by_one_process() -> None:
    def told(*positions: int) -> list[list[Reply]]:
        nodes = [(context(position), requests(position)) for position in positions]
        return [[plain(answer(asked[turn], here)) for here, asked in nodes] for turn in range(4)]

    together = told(0, 1)
    alone = [told(0), told(1)]

    assert together == [
        [first[0], second[0]] for first, second in zip(alone[0], alone[1], strict=True)
    ]
    assert all(isinstance(reply, Trained) for replies in together[1:] for reply in replies)


def test_all_its_state_is_in_flowers_context() -> None:
    lasting, wandering = context(1), context(1)
    for request in requests(1):
        expected = plain(answer(request, lasting))
        simulated_hospital._hospital.cache_clear()
        load_partitions.cache_clear()
        wandering = carried(wandering)
        assert plain(answer(request, wandering)) == expected


@pytest.mark.slow
def test_another_process_continues_identically(tmp_path: Path) -> None:
    here, (first, second, third, _) = context(1), requests(1)
    answer(first, here)
    answer(second, here)
    (tmp_path / "context").write_bytes(context_to_proto(here).SerializeToString())
    (tmp_path / "request").write_bytes(third)
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from flwr.common.serde import context_from_proto\n"
        "from flwr.proto.message_pb2 import Context\n"
        "from client_app.simulated_hospital import answer\n"
        "folder = Path(sys.argv[1])\n"
        "context = context_from_proto(Context.FromString((folder / 'context').read_bytes()))\n"
        "reply = answer((folder / 'request').read_bytes(), context)\n"
        "(folder / 'reply').write_bytes(reply)\n"
    )
    environment = {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "99"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)

    expected = plain(answer(third, here))
    assert isinstance(expected, Trained)
    assert plain((tmp_path / "reply").read_bytes()) == expected


def test_the_trainer_uses_as_many_threads_as_the_settings_say() -> None:
    torch.set_num_threads(1)

    answer(hello(), context(0, threads=2))

    assert torch.get_num_threads() == 2


def test_data_that_cannot_be_partitioned_are_an_error_that_says_so() -> None:
    with pytest.raises(DataError, match="lower hospitals, examples or held-out"):
        answer(hello(), context(0, examples=10_000))


def test_a_wrong_setting_is_an_error_that_names_it() -> None:
    with pytest.raises(SettingsError, match=r"threads must be at least 1, got 0 \(run config\)"):
        answer(hello(), context(0, threads=0))


# --- the store in Flower's context ----------------------------------------------------------------


def test_the_store_is_a_mapping_like_any_other() -> None:
    here = context(0)
    store, plain = ContextState(here), {}
    for mapping in (store, plain):
        mapping["a"] = b"1"
        mapping["b"] = b"\x00\xff"
        mapping["a"] = b"2"
        mapping["c"] = b""
        del mapping["b"]
    assert dict(store) == plain
    assert (len(store), "a" in store, "b" in store, store.get("b")) == (2, True, False, None)
    assert dict(ContextState(carried(here))) == plain
    store.clear()
    assert dict(ContextState(here)) == {}


def test_two_nodes_stores_are_their_own() -> None:
    here, there = context(0), context(1)
    ContextState(here)["a"] = b"1"

    assert dict(ContextState(there)) == {}
    assert dict(ContextState(here)) == {"a": b"1"}


def test_the_store_leaves_other_records_alone() -> None:
    here = context(0)
    here.state["others"] = ConfigRecord({"a": 1})

    ContextState(here)["a"] = b"1"
    ContextState(here).clear()

    assert dict(here.state.config_records["others"]) == {"a": 1}


def test_what_is_not_bytes_is_not_read_as_state() -> None:
    here = context(0)
    here.state["feddc-hospital"] = ConfigRecord({"descriptor": "text"})

    with pytest.raises(TypeError, match="descriptor holds str, expected bytes"):
        ContextState(here)["descriptor"]
