"""What passes the coordinator, searched byte by byte, and what a recipient can tell from it.

The first part looks for what must not be there, and shows for each search that it would find it.
The second shows what is *not* protected: docs/threat-model.md says so, and refers to these tests.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from client_app.policy import Policy
from lab.inprocess import InProcessGrid
from learning.data import Examples, Share
from learning.settings import TrainingSettings
from learning.trainer import Network, Task
from protocol import envelope
from protocol.envelope import Context as Place
from protocol.keys import SealingKey
from protocol.messages import (
    Carries,
    RefusalCode,
    SetUp,
    Trained,
    TrainLeg,
    decode_reply,
    decode_signed_request,
)
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams
from protocol.records import from_records, to_records
from server_app.settings import Settings
from server_app.simulated import run
from strategies.feddc import FedDC
from tests.attacks.study import (
    CLASSES,
    FEATURES,
    NAMES,
    VICTIM,
    Experiment,
    Study,
    examples,
    expect,
    in_process,
    new_study,
    refused,
    share,
)
from tests.conftest import TINY, RecordingGrid

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


@pytest.mark.parametrize("how", spellings(np.ones(FEATURES, np.float32)))
def test_the_search_would_find_it(how: str) -> None:
    canary = canaries()[VICTIM]
    written = spellings(canary)[how]
    assert how in found(canary, [b"abc", b"some " + written + b" text"])
    assert not found(canary, [b"abc", b"some text"])


# --- a canary in a hospital's model ---------------------------------------------------------------


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
        replies = [(data, decode_reply(data)) for _, data in self.to_coordinator]
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


def recorded_run(**changes: Any) -> Recorded:
    """Run the real FedDC over hospitals whose patients are canaries: hand-overs, then the end."""
    study = new_study()
    for name, canary in canaries().items():
        policy = Policy.parse({"unsealed": not changes.get("sealed", True)}, source="test")
        in_process(study, name, Share(name, patients(canary), patients(canary, 8)), policy)
    grid = Recorded(study)
    settings: dict[str, Any] = {"daisy_period": 1, "aggregation_period": None}
    strategy = FedDC(
        FedAvg(),
        roster=study.roster,
        coordinator=study.coordinator,
        route_seed=ROUTE_SEED,
        training_seed=TRAINING_SEED,
        **(settings | changes),
    )
    strategy.start(
        grid,
        ArrayRecord({name: Array(array) for name, array in ZEROS.parameters.items()}),
        num_rounds=6,
        timeout=60,
        train_config=ConfigRecord({**MIRROR, "shape": [FEATURES], "classes": CLASSES}),
    )
    return grid


def test_a_canary_in_a_handed_over_model_passes_the_coordinator_nowhere() -> None:
    grid = recorded_run()

    assert sum(request.recipient is not None for _, request in grid.legs()) == 5 * len(NAMES)
    for canary in canaries().values():
        assert not found(canary, grid.all_but_models_to_aggregate())


def test_without_sealing_the_same_search_finds_every_canary() -> None:
    grid = recorded_run(sealed=False)

    for canary in canaries().values():
        assert "<f4" in found(canary, grid.all_but_models_to_aggregate())


class RawGrid(RecordingGrid):
    """Keeps the bytes that pass the real ServerApp."""

    raw: list[bytes]

    def _deliver(self, message: Message) -> Message:
        reply = super()._deliver(message)
        self.raw += [from_records(message.content), from_records(reply.content)]
        return reply


def run_app(place: Path, **changes: Any) -> list[bytes]:
    """Run the real ServerApp and ClientApp; return all that passed and all that was written."""
    config = TINY | {"hospitals": 4, "rounds": 8, "run-dir": str(place)} | changes
    settings = Settings.from_run_config(config, source="test")
    grid = RawGrid(settings)
    grid.raw = []
    run(grid, settings)
    files = [file.read_bytes() for file in place.rglob("*") if file.is_file()]
    assert files
    return grid.raw + files


def test_no_handed_over_model_is_in_what_the_server_app_saw_or_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over: list[NDArray[np.floating[Any]]] = []
    seal = envelope.seal

    def look_in(payload: bytes, **how: Any) -> bytes:
        if how["context"].leg > 0:  # before that, shares
            # A bias changes in every round: what is aggregated later is another.
            model: dict[str, Any] = ModelState.from_bytes(payload).parameters
            handed_over.append(model["output.bias"])
        return seal(payload, **how)

    monkeypatch.setattr(envelope, "seal", look_in)
    sealed = run_app(tmp_path / "sealed")
    readable = run_app(tmp_path / "readable", sealing=False)

    assert len(handed_over) == 6 * 4  # of eight legs two are aggregations
    for bias in handed_over:
        assert not found(bias, sealed)
        assert "<f8" in found(bias, readable)


def test_no_key_and_no_patient_is_in_what_passes() -> None:
    study = new_study()
    for seed, name in enumerate(NAMES):
        in_process(study, name, share(name, seed))
    experiment = study.experiment()
    for _ in range(3):
        experiment.leg()
    secret_pages = ("sealing-key", "share", "member-key")
    secrets = [experiment.secret(page, name) for page in secret_pages for name in NAMES]
    secrets += [identity.to_bytes() for identity in study.identities.values()]
    experiment.close()
    passed = b"\0".join(part for p in study.passed for part in (p.request, p.reply))

    for secret in secrets:
        assert secret not in passed
        assert secret.hex().encode() not in passed
    for seed, _ in enumerate(NAMES):
        for row in share("", seed).train.features:
            assert not found(row, [passed])
    assert experiment.key_of(VICTIM) in passed  # the search works


# --- the route seed and the sender ----------------------------------------------------------------


def test_the_route_seed_is_in_no_byte_bound_for_a_hospital() -> None:
    grid = recorded_run()
    bound = b"\0".join([*(data for _, data in grid.to_hospitals), *grid.about])

    def written(seed: bytes) -> list[bytes]:
        return [seed, seed[::-1], seed.hex().encode(), base64.b64encode(seed)[:-4]]

    assert not any(data in bound for data in written(ROUTE_SEED))
    assert any(data in bound for data in written(TRAINING_SEED))  # the search works


def test_a_request_names_its_recipient_and_no_other_hospital() -> None:
    grid = recorded_run()
    delivered = [(name, request) for name, request in grid.legs() if request.sealed_in]
    assert delivered

    for name, request in delivered:
        header = request.model_copy(update={"payload": b"", "recipient": None, "seen": None})
        assert not any(member in str(header.model_dump()) for member in NAMES)
        assert not any(member.encode() in request.payload for member in NAMES)
        # The head of an audit trail that it echoes is the hospital's own.
        assert request.seen is not None
        assert request.seen.is_by(grid.study.identities[name].public)
    for data in grid.about:
        assert not any(member.encode() in data for member in NAMES)


def test_envelopes_of_one_leg_all_have_one_length() -> None:
    grid = recorded_run()
    replies = [reply for _, data in grid.to_coordinator if (reply := decode_reply(data))]
    sizes: dict[int, set[int]] = {}
    for reply in replies:
        if isinstance(reply, Trained):
            sizes.setdefault(reply.leg, set()).add(len(reply.payload))

    assert len(sizes) == 6
    assert all(len(lengths) == 1 for lengths in sizes.values())


def opened(experiment: Experiment, data: bytes, leg: int, name: str = VICTIM) -> ModelState:
    """Open an envelope with what its recipient holds."""
    return ModelState.from_bytes(
        envelope.open(
            data,
            context=Place(experiment.id, experiment.secret("epoch-digest", name), leg, name),
            key=SealingKey.from_bytes(experiment.secret("sealing-key", name)),
            member_key=experiment.secret("member-key", name),
        )
    )


def handed_to_victim(experiment: Experiment, sender: str, **changes: Any) -> ModelState:
    """Have a member train the first model and hand it to the victim."""
    request = experiment.request(sender, recipient=VICTIM, **changes)
    reply = expect(Trained, experiment.study.ask(sender, request))
    return opened(experiment, reply.payload, leg=1)


def test_what_a_recipient_opens_is_the_same_bytes_whoever_sent_it() -> None:
    # Two hospitals with the same patients: nothing is left but who they are, and it does not show.
    study = new_study()
    for name in NAMES:
        in_process(study, name, Share(name, examples(16, seed=1), examples(8, seed=2)))
    experiment = study.experiment(training={"model": "mlp", "momentum": 0.9})

    models = [handed_to_victim(experiment, sender) for sender in ("Aspen", "Cedar", "Durmast")]

    assert len({model.to_bytes() for model in models}) == 1
    assert models[0].to_bytes() != experiment.first_model.to_bytes()


def test_a_hospital_gets_one_model_of_a_leg_and_can_compare_no_two() -> None:
    study = new_study()
    for seed, name in enumerate(NAMES):
        in_process(study, name, share(name, seed))
    experiment = study.experiment()
    sent = {
        sender: expect(Trained, study.ask(sender, experiment.request(sender, recipient=VICTIM)))
        for sender in ("Aspen", "Cedar")
    }
    experiment.legs += 1

    def deliver(sender: str, leg: int) -> Any:
        return study.ask(
            VICTIM,
            experiment.request(
                VICTIM,
                leg=leg,
                first_round=leg,
                carries=Carries.ENVELOPE,
                sealed_in=1,
                payload=sent[sender].payload,
            ),
        )

    expect(Trained, deliver("Aspen", 2))
    assert refused(deliver("Cedar", 3)) == RefusalCode.REPLAYED


# --- what is not protected ------------------------------------------------------------------------


def alone(patients_here: Examples, **policy: Any) -> Study:
    """Return a study in which only the victim's data matter."""
    study = new_study()
    for seed, name in enumerate(NAMES):
        own = patients_here if name == VICTIM else examples(8, seed)
        settings = {key.replace("_", "-"): value for key, value in policy.items()}
        in_process(
            study, name, Share(name, own, examples(8, seed)), Policy.parse(settings, source="test")
        )
    return study


def gradient_step(study: Study, **training: Any) -> NDArray[np.float32]:
    """Ask the victim to train a made-up aggregate of zeros for one round, readable."""
    experiment = Experiment(study, study.descriptor(training=MIRROR | training))
    study.ask(VICTIM, SetUp(experiment=experiment.id, payload=experiment.descriptor.to_bytes()))
    request = experiment.request(VICTIM, payload=ZEROS.to_bytes(), recipient=None)
    reply = expect(Trained, study.ask(VICTIM, request))
    weights: Any = ModelState.from_bytes(reply.payload).parameters["output.weight"]
    return np.asarray(weights)


def test_unprotected_a_made_up_aggregate_in_plain_aggregation_shows_patients() -> None:
    canary = canaries()[VICTIM]
    assert np.array_equal(gradient_step(alone(patients(canary)))[1], canary)


def test_unprotected_a_minimum_batch_does_not_hide_one_patient() -> None:
    # The coordinator knows the training seed, hence whom a batch of all but one leaves out.
    here = examples(8, seed=5)
    study = alone(here, minimum_batch=7)
    position, seed = NAMES.index(VICTIM), study.descriptor().training_seed
    kept = TrainingStreams(seed, position).batch(0, 8, 7)
    (left_out,) = set(range(8)) - set(kept.tolist())

    everybody = 8 * gradient_step(study)
    all_but_one = 7 * gradient_step(study, **{"batch-size": 7})

    difference = (everybody - all_but_one)[here.labels[left_out]]
    assert np.allclose(difference, here.features[left_out], atol=1e-4)


def test_unprotected_the_coordinator_may_ask_for_an_aggregation_in_every_leg() -> None:
    study = alone(examples(8, seed=5))
    experiment = study.experiment(aggregation_period=10)
    for leg in range(1, 10):
        request = experiment.request(VICTIM, leg=leg, first_round=leg, recipient=None)
        assert not expect(Trained, study.ask(VICTIM, request)).sealed


def test_unprotected_the_same_rounds_may_be_asked_for_again_in_a_later_leg() -> None:
    study = alone(examples(8, seed=5))
    experiment = study.experiment(rounds=1)
    for leg in (1, 2, 3):
        expect(Trained, study.ask(VICTIM, experiment.request(VICTIM, leg=leg, first_round=0)))


def test_protected_again_where_policy_forbids_plain_aggregation() -> None:
    study = alone(examples(8, seed=5), plain_aggregation=False)
    experiment = study.experiment()

    reply = study.ask(VICTIM, experiment.request(VICTIM, recipient=None))

    assert refused(reply) == RefusalCode.AGAINST_POLICY
    expect(Trained, study.ask(VICTIM, experiment.request(VICTIM)))


def test_unprotected_first_models_of_their_own_tell_a_recipient_who_sent() -> None:
    # They follow from the training seed and a position in the roster, which every member knows.
    study = new_study()
    for seed, name in enumerate(NAMES):
        in_process(study, name, share(name, seed))
    experiment = study.experiment(init="own")
    descriptor = experiment.descriptor
    settings = TrainingSettings.parse(descriptor.training, source="test")
    own: list[dict[str, Any]] = []
    for position, _ in enumerate(NAMES):
        seed = TrainingStreams(descriptor.training_seed, position).init_seed()
        network = Network(settings, Task(descriptor.shape, descriptor.classes), seed=seed)
        own.append(network.arrays()[0])

    for sender in ("Aspen", "Cedar", "Durmast"):
        model = handed_to_victim(experiment, sender, carries=Carries.NOTHING, payload=b"")
        nearest = min(range(len(NAMES)), key=lambda p: distance(own[p], model))
        assert NAMES[nearest] == sender


def distance(one: dict[str, Any], other: ModelState) -> float:
    differences: list[float] = [
        float(np.abs(one[name] - array).sum()) for name, array in other.parameters.items()
    ]
    return sum(differences)


def test_unprotected_whether_training_diverged_shows_at_the_next_hospital() -> None:
    # Weights of 10³⁸ overflow for a patient with a value above 3.4, and for nobody else.
    huge = ModelState(ZEROS.parameters | {"output.weight": np.full((2, 4), 1e38, np.float32)})
    told = []
    for value in (0.5, 3.5):
        study = alone(patients(np.array([value, 0, 0, 0], np.float32)), metrics=[])
        experiment = study.experiment(training=MIRROR | {"learning-rate": 0.1})
        request = experiment.request(VICTIM, recipient="Cedar", payload=huge.to_bytes())
        reply = expect(Trained, study.ask(VICTIM, request))
        assert reply.loss is None
        experiment.legs += 1
        experiment.envelopes["Cedar"] = reply.payload
        told.append(study.ask("Cedar", experiment.request("Cedar")).kind)

    assert told == ["trained", "refusal"]


def test_unprotected_a_descriptor_of_fewer_classes_asks_for_the_highest_label() -> None:
    told = []
    for highest in (1, 2):
        here = examples(8, seed=5)
        labels = np.where(np.arange(8) == 0, highest, here.labels)
        study = alone(Examples(here.features, labels))
        descriptor = study.descriptor(classes=2)
        request = SetUp(experiment=descriptor.experiment, payload=descriptor.to_bytes())
        told.append(study.ask(VICTIM, request).kind)

    assert told == ["announcement", "refusal"]


def test_unprotected_an_aggregate_is_recognisably_not_an_envelope() -> None:
    # The paper's random schedule would hide which of the two a hospital has got.
    grid = recorded_run(aggregation_period=3)
    kinds = {request.carries for _, request in grid.legs()}
    assert kinds == {Carries.AGGREGATE, Carries.ENVELOPE}
