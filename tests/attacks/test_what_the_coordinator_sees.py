"""What passes the coordinator, searched byte by byte for what must not be there.

For each search it is shown that it would find it.
"""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from numpy.typing import NDArray

from learning.data import Partition
from protocol.message_bytes import decode_signed_reply, decode_signed_request
from protocol.messages import Carries, RefusalCode, SetUp, Trained, TrainLeg
from protocol.model_bytes import ModelState
from protocol.records import from_records
from protocol.sealing import envelope
from server_app.config.run_config import Settings
from server_app.run.simulated_run import run
from tests.attacks.canaries import (
    ROUTE_SEED,
    TRAINING_SEED,
    canaries,
    found,
    handed_to_victim,
    recorded_run,
    spellings,
)
from tests.attacks.study import (
    FEATURES,
    NAMES,
    VICTIM,
    examples,
    expect,
    in_process,
    new_study,
    partition,
    refused,
)
from tests.conftest import TINY, RecordingGrid


@pytest.mark.parametrize("how", spellings(np.ones(FEATURES, np.float32)))
def test_the_search_would_find_it(how: str) -> None:
    canary = canaries()[VICTIM]
    written = spellings(canary)[how]
    assert how in found(canary, [b"abc", b"some " + written + b" text"])
    assert not found(canary, [b"abc", b"some text"])


# --- a canary in a hospital's model ---------------------------------------------------------------


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
        if how["context"].leg > 0:  # before that, key shares
            # A bias changes in every round: what is aggregated later is another.
            model: dict[str, Any] = ModelState.from_bytes(payload).parameters
            handed_over.append(model["output.bias"])
        return seal(payload, **how)

    monkeypatch.setattr(envelope, "seal", look_in)
    sealed = run_app(tmp_path / "sealed")
    readable = run_app(tmp_path / "readable", sealed=False)

    assert len(handed_over) == 6 * 4  # of eight legs two are aggregations
    for bias in handed_over:
        assert not found(bias, sealed)
        assert "<f8" in found(bias, readable)


def test_no_key_and_no_patient_is_in_what_passes() -> None:
    study = new_study()
    for seed, name in enumerate(NAMES):
        in_process(study, name, partition(name, seed))
    experiment = study.experiment()
    for _ in range(3):
        experiment.leg()
    secret_pages = ("sealing-key", "key-share", "member-key")
    secrets = [experiment.secret(page, name) for page in secret_pages for name in NAMES]
    secrets += [identity.to_bytes() for identity in study.identities.values()]
    experiment.close()
    passed = b"\0".join(part for p in study.passed for part in (p.request, p.reply))

    for secret in secrets:
        assert secret not in passed
        assert secret.hex().encode() not in passed
    for seed, _ in enumerate(NAMES):
        for row in partition("", seed).train.features:
            assert not found(row, [passed])
    assert experiment.key_of(VICTIM) in passed  # the search works


# --- the route seed and the sender ----------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"init": "own"},
        {"fraction": 0.5},
        {"aggregation_period": 2, "random_schedule": True},
    ],
    ids=str,
)
def test_the_route_seed_is_in_no_byte_bound_for_a_hospital(changes: dict[str, Any]) -> None:
    grid = recorded_run(**changes)

    def tells(data: bytes, seed: bytes) -> bool:
        # Not even the first bytes of it may leave, raw or as text.
        parts = (seed[:8], seed[::-1][:8], base64.b64encode(seed)[:12])
        return any(part in data for part in parts) or seed.hex()[:16].encode() in data.lower()

    assert not any(tells(data, ROUTE_SEED) for _, data in grid.to_hospitals)
    assert not any(tells(data, ROUTE_SEED) for data in grid.about)
    # The training seed leaves in the descriptor, and nowhere else: the search would find it.
    for _, data in grid.to_hospitals:
        assert tells(data, TRAINING_SEED) == isinstance(decode_signed_request(data), SetUp)


def test_a_request_names_its_recipient_and_no_other_hospital() -> None:
    grid = recorded_run()
    delivered = [(name, request) for name, request in grid.legs() if request.sealed_in]
    assert delivered

    for hospital, data in grid.to_hospitals:
        request = decode_signed_request(data)
        if isinstance(request, TrainLeg):
            named = {member for member in NAMES if member.encode() in data}
            assert named == {hospital, request.recipient or hospital}
    for name, request in delivered:
        # The head of an audit log that it echoes is the hospital's own.
        assert request.seen is not None
        assert request.seen.is_by(grid.study.identities[name].public)
    for data in grid.about:
        assert not any(member.encode() in data for member in NAMES)


def test_envelopes_of_one_leg_all_have_one_length() -> None:
    grid = recorded_run()
    replies = [reply for _, data in grid.to_coordinator if (reply := decode_signed_reply(data))]
    sizes: dict[int, set[int]] = {}
    for reply in replies:
        if isinstance(reply, Trained):
            sizes.setdefault(reply.leg, set()).add(len(reply.payload))

    assert len(sizes) == 6
    assert all(len(lengths) == 1 for lengths in sizes.values())


def test_what_a_recipient_opens_is_the_same_bytes_whoever_sent_it() -> None:
    # Two hospitals with the same patients: nothing is left but who they are, and it does not show.
    study = new_study()
    for name in NAMES:
        in_process(study, name, Partition(name, examples(16, seed=1), examples(8, seed=2)))
    experiment = study.experiment(training={"model": "mlp", "momentum": 0.9})

    models = [handed_to_victim(experiment, sender) for sender in ("Aspen", "Cedar", "Durmast")]

    assert len({model.to_bytes() for model in models}) == 1
    assert models[0].to_bytes() != experiment.first_model.to_bytes()


def test_a_hospital_gets_one_model_of_a_leg_and_can_compare_no_two() -> None:
    study = new_study()
    for seed, name in enumerate(NAMES):
        in_process(study, name, partition(name, seed))
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
                carries=Carries.ENVELOPE,
                sealed_in=1,
                payload=sent[sender].payload,
            ),
        )

    expect(Trained, deliver("Aspen", 2))
    assert refused(deliver("Cedar", 3)) == RefusalCode.REPLAYED
