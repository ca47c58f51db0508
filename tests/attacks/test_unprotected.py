"""What is *not* protected: docs/threat-model.md says so, and refers to these tests."""

import numpy as np
from numpy.typing import NDArray

from protocol.messages import Carries, Trained
from protocol.model_bytes import ModelState
from tests.attacks.canaries import MIRROR, ZEROS, canaries, opened, patients, recorded_run
from tests.attacks.forgeries import sealed
from tests.attacks.study import NAMES, VICTIM, alone, examples, expect


def test_unprotected_a_made_up_aggregate_in_plain_aggregation_shows_patients() -> None:
    canary = canaries()[VICTIM]
    study = alone(patients(canary))
    experiment = study.experiment(
        daisy_period=None, aggregation_period=1, rounds=2, training=MIRROR
    )
    experiment.leg(**{name: experiment.request(name, recipient=None) for name in NAMES})
    experiment.envelopes.clear()

    request = experiment.request(VICTIM, payload=ZEROS.to_bytes(), recipient=None)
    reply = expect(Trained, study.ask(VICTIM, request))

    assert np.array_equal(ill(ModelState.from_bytes(reply.payload)), canary)


def test_unprotected_an_aggregate_is_recognisably_not_an_envelope() -> None:
    # The paper's random schedule would hide which of the two a hospital has got.
    grid = recorded_run(aggregation_period=3)
    kinds = {request.carries for _, request in grid.legs()}
    assert kinds == {Carries.AGGREGATE, Carries.ENVELOPE}


def test_unprotected_a_first_model_that_is_given_shows_patients() -> None:
    # The descriptor names its digest: one made-up model more for each experiment.
    canary = canaries()[VICTIM]
    study = alone(patients(canary))
    experiment = study.experiment(
        daisy_period=None, aggregation_period=1, training=MIRROR, first_model=ZEROS.digest()
    )

    request = experiment.request(VICTIM, payload=ZEROS.to_bytes(), recipient=None)
    reply = expect(Trained, study.ask(VICTIM, request))

    assert np.array_equal(ill(ModelState.from_bytes(reply.payload)), canary)


def test_unprotected_a_recipient_reconstructs_the_records_of_a_small_batch() -> None:
    # Nobody deviates: the recipient subtracts the shared first model from the one handed to it.
    records = examples(2, seed=5)
    study = alone(records)
    experiment = study.experiment(
        training={"model": "mlp", "model-options": '{"hidden": [64]}', "batch-size": 2}
    )
    reply = expect(Trained, study.ask(VICTIM, experiment.request(VICTIM, recipient="Cedar")))

    before = experiment.first_model.parameters
    after = opened(experiment, reply.payload, 1, "Cedar").parameters
    weight, bias = (name for name, array in before.items() if len(array) == 64)
    steps = np.asarray(after[weight]) - np.asarray(before[weight])
    steps_of_bias = np.asarray(after[bias]) - np.asarray(before[bias])
    # A neuron that is active for one of the two records shows that record.
    shown = steps[steps_of_bias != 0] / steps_of_bias[steps_of_bias != 0, None]
    for record in records.features:
        assert np.isclose(shown, record, atol=1e-3).all(axis=1).any()


def test_unprotected_coordinator_and_member_choose_a_model_and_read_what_becomes_of_it() -> None:
    canary = canaries()[VICTIM]
    study = alone(patients(canary))
    experiment = study.experiment(training=MIRROR)
    experiment.leg()

    honest = experiment.request(VICTIM, recipient="Cedar")
    made_up = sealed(lambda _: ZEROS.to_bytes())(experiment, honest)
    reply = expect(Trained, study.ask(VICTIM, made_up))

    assert np.array_equal(ill(opened(experiment, reply.payload, 2, "Cedar")), canary)


def ill(model: ModelState) -> NDArray[np.float32]:
    """Return the weights of the class that all canaries have."""
    weights: NDArray[np.float32] = np.asarray(model.parameters["output.weight"])[1]
    return weights
