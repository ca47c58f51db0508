"""Patients whose values are easy to find again, a run that is recorded, and the search."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from client_app.hospital.agreement.policy import Policy
from lab.flower.in_process import InProcessGrid
from learning.data import Examples, Partition
from protocol.message_bytes import decode_signed_reply, decode_signed_request
from protocol.messages import Trained, TrainLeg
from protocol.model_bytes import ModelState
from protocol.records import from_records, to_records
from protocol.sealing import envelope
from protocol.sealing.envelope import Context as Place
from protocol.sealing.keys import SealingKey
from strategies.feddc import FedDC
from strategies.session.sealed_study import SealedStudy
from tests.attacks.study import (
    CLASSES,
    FEATURES,
    NAMES,
    POLICY,
    VICTIM,
    Experiment,
    Study,
    expect,
    in_process,
    new_study,
)

ROUTE_SEED, TRAINING_SEED = bytes(range(100, 132)), bytes(range(200, 232))
# From a model of zeros, one full step at rate 2 with a linear model puts a patient's values, as
# they are, into its weights: p = ½, so the gradient of the right class is −½x.
MIRROR: dict[str, Any] = {
    "model": "linear",
    "model-options": "{}",
    "learning-rate": 2.0,
    "batch-size": 0,
}
ZEROS = ModelState(
    {
        "output.weight": np.zeros((CLASSES, FEATURES), np.float32),
        "output.bias": np.zeros(CLASSES, np.float32),
    }
)


def patients(values: NDArray[np.float32], count: int = 4) -> Examples:
    """Return patients who are all alike, and all ill."""
    return Examples(np.repeat(values[None], count, axis=0), np.ones(count, np.int64))


def canaries() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(4711)
    return {name: rng.uniform(1, 9, FEATURES).astype(np.float32) for name in NAMES}


# Fewer signs than these stand somewhere in so many random bytes by chance.
_TELLING = 8


def spellings(values: NDArray[np.floating[Any]]) -> dict[str, bytes]:
    """Return the ways in which consecutive numbers could be written somewhere."""
    spelled = {}
    for form in ("<f4", ">f4", "<f8", ">f8"):
        raw = values.astype(np.dtype(form)).tobytes()
        spelled[form] = raw
        spelled[f"{form} in hex"] = raw.hex().encode()
        for shift in range(3):  # Base64 depends on where in a group of three it begins
            inner = base64.b64encode(bytes(shift) + raw)[4:-4]
            if len(inner) >= _TELLING:
                spelled[f"{form} in Base64, {shift}"] = inner
    spelled["text"] = str(values[0]).encode()
    spelled["a list"] = str(values.tolist())[1:-1].encode()
    return spelled


def found(values: NDArray[np.floating[Any]], recorded: Iterable[bytes]) -> set[str]:
    """Return the spellings in which the numbers occur in what was recorded."""
    everything = b"\0".join(recorded)
    return {how for how, data in spellings(values).items() if data in everything}


@dataclass
class Recorded(InProcessGrid):
    """A grid that leads to a study's hospitals and keeps every message, as bytes."""

    study: Study
    to_hospitals: list[tuple[str, bytes]] = field(default_factory=list)
    to_coordinator: list[tuple[str, bytes]] = field(default_factory=list)
    about: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        app = ClientApp()

        @app.train()
        def carry(message: Message, context: Context) -> Message:
            name = NAMES[int(context.node_config["partition-id"])]
            data = from_records(message.content)
            reply = self.study.hospitals[name].answer(data)
            self.to_hospitals.append((name, data))
            self.to_coordinator.append((name, reply))
            self.about.append(str(message.metadata).encode())
            return Message(to_records(reply), reply_to=message)

        super().__init__(app, len(NAMES), {})

    def all_but_models_to_aggregate(self) -> list[bytes]:
        """Return what passed, but for the models that the coordinator is meant to read."""
        last = max(request.leg for _, request in self.legs())
        replies = [(data, decode_signed_reply(data)) for _, data in self.to_coordinator]
        passed = [
            data
            for data, reply in replies
            if not (isinstance(reply, Trained) and reply.leg == last)
        ]
        assert len(passed) == len(replies) - len(NAMES)
        return passed + [data for _, data in self.to_hospitals] + self.about

    def legs(self) -> list[tuple[str, TrainLeg]]:
        requests = [(name, decode_signed_request(data)) for name, data in self.to_hospitals]
        return [(name, request) for name, request in requests if isinstance(request, TrainLeg)]


@cache
def recorded_run(*, sealed: bool = True, **changes: Any) -> Recorded:
    """Run the real FedDC over hospitals whose patients are canaries; hand-overs unless changed."""
    study = new_study()
    for name, canary in canaries().items():
        policy = Policy.parse(POLICY | {"sealed": sealed}, source="test")
        in_process(study, name, Partition(name, patients(canary), patients(canary, 8)), policy)
    grid = Recorded(study)
    settings: dict[str, Any] = {"daisy_period": 1, "aggregation_period": None}
    strategy = FedDC(
        FedAvg(),
        study=SealedStudy(
            study.roster,
            study.coordinator,
            route_seed=ROUTE_SEED,
            training_seed=TRAINING_SEED,
            sealed=sealed,
        ),
        **(settings | changes),
    )
    strategy.start(
        grid,
        ArrayRecord({name: Array(array) for name, array in ZEROS.parameters.items()}),
        num_rounds=6,
        timeout=300,
        train_config=ConfigRecord({**MIRROR, "shape": [FEATURES], "classes": CLASSES}),
    )
    return grid


def opened(experiment: Experiment, data: bytes, leg: int, name: str = VICTIM) -> ModelState:
    """Open an envelope with what its recipient holds."""
    return ModelState.from_bytes(
        envelope.open(
            data,
            context=Place(experiment.id, experiment.secret("generation-digest", name), leg, name),
            key=SealingKey.from_bytes(experiment.secret("sealing-key", name)),
            member_key=experiment.secret("member-key", name),
        )
    )


def handed_to_victim(experiment: Experiment, sender: str, **changes: Any) -> ModelState:
    """Have a member train the first model and hand it to the victim."""
    request = experiment.request(sender, recipient=VICTIM, **changes)
    reply = expect(Trained, experiment.study.ask(sender, request))
    return opened(experiment, reply.payload, leg=1)
