"""Ways to change one thing in an honest request, as an evil coordinator or its accomplice could."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from protocol.message_bytes import MAGIC, encode
from protocol.messages import Carries, Close, Request, SetUp, TrainLeg
from protocol.model_bytes import ModelState
from protocol.sealing import envelope
from protocol.sealing.envelope import Context
from protocol.sealing.keys import Identity
from tests.attacks.study import VICTIM, Experiment

Attack = Callable[[Experiment, TrainLeg], Request | bytes]
MakeModel = Callable[[ModelState], bytes]


def changed(**changes: Any) -> Attack:
    return lambda _, honest: honest.model_copy(update=changes)


def last_request(**changes: Any) -> Attack:
    """Change the request that the victim answered last."""
    return lambda experiment, _: experiment.asked[VICTIM].model_copy(update=changes)


def signed_by(
    identity: Identity, purpose: str = "request", request: Request | None = None
) -> Attack:
    def attack(experiment: Experiment, honest: TrainLeg) -> bytes:
        study = experiment.study.roster.study
        addressed = (request or honest).model_copy(update={"study": study, "hospital": VICTIM})
        body = encode(addressed)
        return body + identity.sign(purpose, hashlib.sha256(body).digest())

    return attack


def altered(change: Callable[[bytes], bytes]) -> Attack:
    """Change the signed bytes in transit."""
    return lambda experiment, honest: change(experiment.study.sign(honest))


def resigned(change: Callable[[bytes], bytes]) -> Attack:
    """Change the header's text and sign the result."""

    def attack(experiment: Experiment, honest: TrainLeg) -> bytes:
        bare = experiment.study.sign(honest.model_copy(update={"payload": b""}))[:-64]
        header = change(bare[8:])
        body = MAGIC + len(header).to_bytes(4, "big") + header + honest.payload
        coordinator = experiment.study.coordinator
        return body + coordinator.sign("request", hashlib.sha256(body).digest())

    return attack


def payload(change: Callable[[bytes], bytes]) -> Attack:
    """Change the envelope and sign the result."""
    return lambda _, honest: honest.model_copy(update={"payload": change(honest.payload)})


def sealed(
    model: MakeModel = ModelState.to_bytes,
    *,
    key_of: str = VICTIM,
    member_key: bytes | None = None,
    **context: Any,
) -> Attack:
    """Seal a model for the victim, as a member that colludes with the coordinator could."""

    def attack(experiment: Experiment, honest: TrainLeg) -> TrainLeg:
        right = Context(
            experiment.id, experiment.secret("generation-digest"), experiment.legs, VICTIM
        )
        data = envelope.seal(
            model(experiment.first_model),
            context=replace(right, **context),
            recipient_key=experiment.key_of(key_of),
            member_key=member_key or experiment.secret("member-key"),
        )
        return honest.model_copy(update={"payload": data})

    return attack


def agreement(experiment: Experiment, **changes: Any) -> SetUp:
    """Ask for agreement to the experiment with changed settings."""
    terms = experiment.descriptor.model_copy(update=changes)
    return SetUp(experiment=experiment.id, payload=terms.to_bytes())


def aggregate(model: MakeModel) -> Attack:
    return lambda experiment, honest: honest.model_copy(
        update={
            "carries": Carries.AGGREGATE,
            "sealed_in": None,
            "payload": model(experiment.first_model),
        }
    )


def final(model: MakeModel) -> Attack:
    return lambda experiment, _: Close(
        experiment=experiment.id, payload=model(experiment.first_model)
    )


def tensor(name: str, change: Callable[[Any], Any]) -> MakeModel:
    return lambda model: ModelState(
        model.parameters | {name: change(model.parameters[name])}
    ).to_bytes()


def with_value(value: float) -> MakeModel:
    return tensor("output.bias", lambda array: np.full_like(array, value))


def with_more(name: str, count: int = 1) -> MakeModel:
    return lambda model: ModelState(
        model.parameters | {name: np.zeros(count, np.float32)}
    ).to_bytes()


def without(name: str) -> MakeModel:
    return lambda model: ModelState(
        {key: array for key, array in model.parameters.items() if key != name}
    ).to_bytes()
