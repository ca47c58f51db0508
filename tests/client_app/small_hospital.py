"""A hospital with a few examples, in this process, and requests to ask it with."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from client_app.final_models.model_folder import FinalModels
from client_app.hospital.agreement.policy import Policy
from client_app.hospital.hospital import Hospital
from client_app.state.decisions import Decisions
from client_app.state.store import MappingStore
from learning.data import Examples, Partition
from learning.models import build
from protocol.descriptor import Descriptor
from protocol.message_bytes import decode_signed_reply, sign_request
from protocol.messages import (
    Announcement,
    Carries,
    Close,
    RefusalCode,
    Reply,
    Request,
    SetUp,
    Trained,
    TrainLeg,
)
from protocol.model_bytes import ModelState
from protocol.randomness import shared_init_seed
from protocol.sealing.keys import Identity
from protocol.study.roster import Member, Roster

Code = RefusalCode
NAMES = ("east", "north", "south")
NAME, SHAPE, CLASSES, ROUNDS = "north", (1, 6, 6), 3, 40
IDENTITIES = {name: Identity.from_bytes(bytes([n] * 32)) for n, name in enumerate(NAMES, start=1)}
COORDINATOR, STRANGER = Identity.from_bytes(bytes([9] * 32)), Identity.from_bytes(bytes([8] * 32))
ROSTER = Roster.make(
    "study", 1, COORDINATOR.public, [Member(n, i.public) for n, i in IDENTITIES.items()]
)
# Schedules whose legs have two rounds each, as `leg` asks for.
EVERY_LEG_AGGREGATES: dict[str, Any] = {"daisy_period": None, "aggregation_period": 2}
EVERY_SECOND_LEG_AGGREGATES: dict[str, Any] = {"daisy_period": 2, "aggregation_period": 4}
# Metrics are neither rounded nor withheld, so that they can be compared.
OPEN_POLICY: dict[str, Any] = {
    "approval": "automatic",
    "maximum-experiments": 1000,
    "sealed": False,
    "plain-aggregation": True,
    "metrics": ["examples", "loss", "accuracy", "held-out"],
    "private-streams": False,
    "hand-on-diverged": False,
    "metric-decimals": 12,
    "maximum-fraction-per-recipient": 1.0,
}
TRAINING: dict[str, Any] = {
    "model": "mlp",
    "model-options": '{"hidden": [4]}',
    "precision": "float64",
    "batch-size": 3,
}
LARGE = {"model-options": '{"hidden": [2000]}'}  # half a megabyte: many pages of the store
FIRST_SEED = shared_init_seed(bytes(32))  # of the first model that hospitals build themselves
# mri-cnn has BatchNorm: running statistics and counters travel with it.
WITH_BUFFERS = {"model": "mri-cnn", "model-options": '{"filters": [2, 2]}'}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "adam": {"optimizer": "adam", "learning-rate": 0.01},
    "fedprox": {"proximal-mu": 0.7},
    "fedprox with adam": {"proximal-mu": 0.7, "optimizer": "adam", "learning-rate": 0.01},
    "momentum kept": {"momentum": 0.9, "optimizer-state": "kept"},
    "adam kept": {"optimizer": "adam", "learning-rate": 0.01, "optimizer-state": "kept"},
    "running statistics": WITH_BUFFERS | {"momentum": 0.9},
    "half the bytes": {"precision": "float32", "wire-dtype": "bfloat16", "momentum": 0.9},
}


def examples(count: int, seed: int) -> Examples:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    return Examples(rng.normal(size=(count, *SHAPE)).astype(np.float32), rng.permutation(labels))


PARTITIONS = {
    name: Partition(name, examples(8, n), examples(5, 10 + n), tuple(map(str, range(CLASSES))))
    for n, name in enumerate(NAMES)
}


def member(
    name: str = NAME,
    memory: dict[str, bytes] | None = None,
    *,
    partition: Partition | None = None,
    policy: dict[str, Any] | None = None,
    roster: Roster = ROSTER,
    decisions: Decisions | None = None,
    final_models: FinalModels | None = None,
    codebook: bytes | None = None,
) -> Hospital:
    """Return a hospital that has agreed to nothing yet."""
    return Hospital(
        name,
        partition or PARTITIONS[name],
        MappingStore({} if memory is None else memory),
        identity=IDENTITIES[name],
        roster=roster,
        policy=Policy.parse(OPEN_POLICY | (policy or {}), source="test"),
        decisions=decisions,
        final_models=final_models,
        codebook=codebook,
    )


def descriptor(**changes: Any) -> Descriptor:
    fields: dict[str, Any] = {
        "experiment": "e1",
        "rounds": ROUNDS,
        "daisy_period": 2,  # leg k has the rounds 2k − 2 and 2k − 1
        "aggregation_period": None,
        "init": "shared",
        "shape": SHAPE,
        "classes": CLASSES,
        "training": TRAINING,
        "training_seed": bytes(32),
        "sealed": False,
        "roster": ROSTER.digest,
        "first_model_is_given": True,
    }
    fields |= changes
    if fields["init"] == "own":
        fields["first_model_is_given"] = False
    elif "first_model" not in fields:
        fields["first_model"] = hashlib.sha256(wired(fields["training"])).digest()
    return Descriptor(**fields)


def built_here(**changes: Any) -> Descriptor:
    """Return a descriptor by which hospitals build their first model, shared or their own."""
    chosen = changes.get("training", TRAINING)
    digest = hashlib.sha256(wired(chosen, FIRST_SEED)).digest()
    is_shared = changes.get("init", "shared") == "shared"
    first = {"first_model": digest if is_shared else None, "first_model_is_given": False}
    return descriptor(**(first | changes))


def signed(request: Request, name: str = NAME) -> bytes:
    return sign_request(request, COORDINATOR, study=ROSTER.study, hospital=name)


def set_up(agreed: Descriptor, name: str = NAME) -> bytes:
    return signed(SetUp(experiment=agreed.experiment, payload=agreed.to_bytes()), name)


def hospital(
    memory: dict[str, bytes] | None = None,
    *,
    partition: Partition | None = None,
    schedule: dict[str, Any] | None = None,
    **training: Any,
) -> Hospital:
    """Return a hospital that has agreed to an experiment with these training settings."""
    here = member(memory=memory, partition=partition)
    agreed = descriptor(training=TRAINING | training, **(schedule or {}))
    reply = decode_signed_reply(here.answer(set_up(agreed)))
    assert isinstance(reply, Announcement)
    return here


def model(init_seed: int = 5, **training: Any) -> ModelState:
    """Return the network's first state, taken from the registry and torch alone."""
    chosen = TRAINING | training
    network = build(
        chosen["model"],
        shape=SHAPE,
        classes=CLASSES,
        options=json.loads(chosen["model-options"]),
        seed=init_seed,
    ).to(getattr(torch, chosen["precision"]))
    trained = {name for name, _ in network.named_parameters()}
    arrays = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
    state = ModelState(
        {name: array for name, array in arrays.items() if name in trained},
        {name: array for name, array in arrays.items() if name not in trained},
    )
    wire = chosen.get("wire-dtype", "same")
    return ModelState.from_bytes(state.to_bytes(wire=wire), wire=wire)


def leg(payload: bytes | ModelState = b"", name: str = NAME, **changes: Any) -> bytes:
    number = changes.get("leg", 1)
    fields: dict[str, Any] = {
        "experiment": "e1",
        "leg": number,
        "first_round": 2 * number - 2,
        "local_rounds": 2,
        "carries": Carries.AGGREGATE,
        "recipient": "east",
    }
    data = payload.to_bytes() if isinstance(payload, ModelState) else payload
    return signed(TrainLeg(**(fields | changes), payload=data), name)


def close(payload: bytes | ModelState, experiment: str = "e1", **changes: Any) -> bytes:
    data = payload.to_bytes() if isinstance(payload, ModelState) else payload
    return signed(Close(experiment=experiment, payload=data, **changes))


def plain(reply: bytes) -> Reply:
    """Return a reply without the head of the audit log, which changes with every request."""
    message = decode_signed_reply(reply)
    assert message.audit is not None
    return message.model_copy(update={"audit": None})


def trained(reply: bytes) -> Trained:
    message = decode_signed_reply(reply)
    assert isinstance(message, Trained), message
    return message


def remembered(memory: dict[str, bytes]) -> dict[str, bytes]:
    """Return a hospital's state without the head of its audit log."""
    return {name: value for name, value in memory.items() if name != "audit-head"}


def changed(name: str, change: Callable[[Any], Any]) -> ModelState:
    return ModelState(model().parameters | {name: change(model().parameters[name])})


def with_value(value: float) -> ModelState:
    return changed("output.bias", lambda array: np.append(array[:-1], value))


def second(**changes: Any) -> bytes:
    return set_up(descriptor(**({"experiment": "e2"} | changes)))


def training(**changes: Any) -> bytes:
    wanted = {key.replace("_", "-"): value for key, value in changes.items()}
    return second(init="own", training=TRAINING | wanted)


def forged(request: bytes, identity: Identity = STRANGER, purpose: str = "request") -> bytes:
    body = request[:-64]
    return body + identity.sign(purpose, hashlib.sha256(body).digest())


def wired(chosen: dict[str, Any], init_seed: int = 5) -> bytes:
    return model(init_seed, **chosen).to_bytes(wire=chosen.get("wire-dtype", "same"))
