"""What is *not* protected: docs/threat-model.md says so, and refers to these tests."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_app.hospital.policy import Policy
from learning.data import Examples, Partition
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from protocol.messages import Carries, RefusalCode, SetUp, Trained
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams
from tests.attacks.canaries import (
    MIRROR,
    ZEROS,
    canaries,
    handed_to_victim,
    patients,
    recorded_run,
)
from tests.attacks.study import (
    NAMES,
    VICTIM,
    Experiment,
    Study,
    examples,
    expect,
    in_process,
    new_study,
    partition,
    refused,
)


def alone(patients_here: Examples, **policy: Any) -> Study:
    """Return a study in which only the victim's data matter."""
    study = new_study()
    for seed, name in enumerate(NAMES):
        own = patients_here if name == VICTIM else examples(8, seed)
        settings = {key.replace("_", "-"): value for key, value in policy.items()}
        in_process(
            study,
            name,
            Partition(name, own, examples(8, seed)),
            Policy.parse(settings, source="test"),
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
        in_process(study, name, partition(name, seed))
    experiment = study.experiment(init="own")
    descriptor = experiment.descriptor
    settings = TrainingSettings.parse(descriptor.training, source="test")
    own: list[dict[str, Any]] = []
    for position, _ in enumerate(NAMES):
        seed = TrainingStreams(descriptor.training_seed, position).init_seed()
        network = Network(settings, TaskSpec(descriptor.shape, descriptor.classes), seed=seed)
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
