"""What leaves a hospital under differential privacy, in hand-overs and averages."""

import math
from typing import Any

import numpy as np
import pytest

from learning.data import Examples, Partition
from learning.privacy import NoiseSource
from protocol.message_bytes import decode_signed_reply as decoded
from protocol.messages import Announcement, Closed, Refusal, RefusalCode, Trained
from protocol.model_bytes import ModelState
from tests.client_app.small_hospital import (
    CLASSES,
    EVERY_LEG_AGGREGATES,
    NAME,
    PARTITIONS,
    SHAPE,
    TRAINING,
    close,
    descriptor,
    leg,
    member,
    model,
    set_up,
    trained,
)

NOMINAL, CLIP, RATE = 8, 0.5, 0.1
PATIENT: dict[str, Any] = {
    "privacy-unit": "patient",
    "clip-norm": CLIP,
    "nominal-patients": NOMINAL,
    "batch-size": 0,
    "learning-rate": RATE,
}
HOSPITAL: dict[str, Any] = {"privacy-unit": "hospital", "clip-norm": CLIP, "learning-rate": 9.0}
KEY = NoiseSource(bytes(32))


def released(
    settings: dict[str, Any], partition: Partition | None = None, key: NoiseSource = KEY
) -> np.ndarray:
    """Return the update that leaves in a leg of two rounds, as one vector."""
    here = member(partition=partition)
    here._noise = lambda: key
    here.answer(set_up(descriptor(training=TRAINING | settings, **EVERY_LEG_AGGREGATES)))
    sent = ModelState.from_bytes(trained(here.answer(leg(model(), recipient=None))).payload)
    came = model().parameters
    return np.concatenate([(sent.parameters[n] - came[n]).ravel() for n in sorted(came)])


def outlier(rows: int) -> Partition:
    """Return the same patients and one more with many examples, all of them huge."""
    own = PARTITIONS[NAME].train
    features = np.concatenate([own.features, np.full((rows, *SHAPE), 1e4, np.float32)])
    labels = np.concatenate([own.labels, np.zeros(rows, np.int64)])
    groups = np.concatenate([np.arange(len(own)), np.full(rows, 99)])
    return Partition(NAME, Examples(features, labels, groups), PARTITIONS[NAME].held_out)


@pytest.mark.parametrize("rows", [1, 5])
def test_one_patient_changes_a_round_by_no_more_than_the_clip_norm(rows: int) -> None:
    """Without noise, and with one round, whose start is the same."""
    one_round = {"training": TRAINING | PATIENT, "daisy_period": 1}
    sums = []
    for partition in (None, outlier(rows)):
        here = member(partition=partition)
        here.answer(set_up(descriptor(**one_round)))
        reply = here.answer(leg(model(), local_rounds=1, recipient="east"))
        sent, came = ModelState.from_bytes(trained(reply).payload).parameters, model().parameters
        update = np.concatenate([(came[n] - sent[n]).ravel() for n in sorted(came)])
        sums.append(update * NOMINAL / RATE)
    assert np.linalg.norm(sums[1] - sums[0]) <= CLIP * (1 + 1e-6)


def test_noise_has_the_deviation_of_the_settings() -> None:
    clean = released(PATIENT)
    noisy = [
        released(PATIENT | {"noise-multiplier": 3.0}, key=KEY.source("run", run))
        for run in range(40)
    ]
    # Two rounds; the second begins where the first ended, which moves little.
    expected = RATE * 3.0 * CLIP / NOMINAL * math.sqrt(2)
    deviation = (np.array(noisy) - clean).std()
    assert deviation == pytest.approx(expected, rel=0.05)


def test_a_hospitals_update_is_clipped_as_a_whole() -> None:
    assert np.linalg.norm(released(HOSPITAL)) == pytest.approx(CLIP, rel=1e-6)
    noisy = released(HOSPITAL | {"noise-multiplier": 2.0}) - released(HOSPITAL)
    assert noisy.std() == pytest.approx(2.0 * CLIP, rel=0.2)


def test_the_same_leg_never_has_the_same_noise_twice() -> None:
    first, second = (released(PATIENT | {"noise-multiplier": 1.0}, key=NoiseSource()) for _ in "ab")
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("settings", [PATIENT, HOSPITAL], ids=["patient", "hospital"])
def test_no_figure_computed_from_patients_leaves(settings: dict[str, Any]) -> None:
    here = member()  # whose policy discloses all of them
    agreed = descriptor(training=TRAINING | settings, **EVERY_LEG_AGGREGATES)
    announced = decoded(here.answer(set_up(agreed)))
    sent = decoded(here.answer(leg(model(), recipient=None)))
    closed = decoded(here.answer(close(model())))

    assert isinstance(announced, Announcement)
    assert announced.examples is None
    assert isinstance(sent, Trained)
    assert {sent.loss, sent.accuracy, sent.held_out_loss, sent.held_out_accuracy} == {None}
    assert isinstance(closed, Closed)
    assert {closed.held_out_loss, closed.held_out_accuracy} == {None}


REFUSED: dict[str, dict[str, Any]] = {
    "BatchNorm": {"model": "mri-cnn", "model-options": '{"filters": [2, 2]}'},
    "no nominal size": {"nominal-patients": 0},
    "a batch larger than it": {"batch-size": 9},
    "FedProx": {"proximal-mu": 0.1},
    "cancelled noise without a secure sum": {"average-noise-multiplier": 1.0},
    "cancelled noise with momentum": {"average-noise-multiplier": 1.0, "momentum": 0.5},
    "a hospital's momentum": {"privacy-unit": "hospital", "momentum": 0.5},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_settings_that_would_make_noise_void_are_refused(change: dict[str, Any]) -> None:
    training = TRAINING | PATIENT | {"noise-multiplier": 1.0} | change
    reply = decoded(member().answer(set_up(descriptor(training=training, init="own"))))

    assert isinstance(reply, Refusal)
    assert reply.code is RefusalCode.DESCRIPTOR_REFUSED


def test_a_gradient_that_is_not_finite_counts_as_zero() -> None:
    own = PARTITIONS[NAME]
    features = np.concatenate([own.train.features, np.full((1, *SHAPE), np.inf, np.float32)])
    labels = np.append(own.train.labels, CLASSES - 1)
    broken = Partition(NAME, Examples(features, labels), own.held_out)

    np.testing.assert_allclose(released(PATIENT, broken), released(PATIENT), rtol=1e-9)
