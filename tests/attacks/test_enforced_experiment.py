"""What a coordinator asked for beside the agreed experiment, and got before agents enforced it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_app.hospital.hospital import Hospital
from client_app.state.store import MappingStore
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Carries, RefusalCode, Trained
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams
from protocol.study.roster import Roster
from tests.attacks.canaries import MIRROR, ZEROS, handed_to_victim, opened, patients
from tests.attacks.study import (
    NAMES,
    VICTIM,
    Experiment,
    Study,
    alone,
    examples,
    expect,
    in_process,
    new_study,
    partition,
    policy,
    refused,
)

Code = RefusalCode
EVERY_LEG: dict[str, Any] = {"daisy_period": None, "aggregation_period": 1}


def test_no_leg_is_answered_before_the_members_have_made_the_keys() -> None:
    """An aggregation leg was answered readable though no other member took part."""
    study = alone(examples(8, seed=5))
    experiment = Experiment(study, study.descriptor(**EVERY_LEG))
    study.ask(VICTIM, experiment.set_up())

    reply = study.ask(VICTIM, experiment.request(VICTIM, recipient=None))

    assert refused(reply) == Code.NOT_SET_UP


def test_a_model_is_readable_only_in_the_legs_that_the_schedule_aggregates() -> None:
    """Aggregations were answered in every leg of an experiment that agreed on every tenth."""
    study = alone(examples(8, seed=5))
    experiment = study.experiment(aggregation_period=3)
    for _ in range(2):
        reply = study.ask(VICTIM, experiment.request(VICTIM, recipient=None))
        assert refused(reply) == Code.AGAINST_SCHEDULE
        experiment.leg()
    expect(Trained, study.ask(VICTIM, experiment.request(VICTIM, recipient=None)))


def test_a_round_is_trained_once() -> None:
    """The same rounds were trained again under the numbers of later legs."""
    study = alone(examples(8, seed=5))
    experiment = study.experiment()
    expect(Trained, study.ask(VICTIM, experiment.request(VICTIM)))
    for leg in (2, 3):
        request = experiment.request(VICTIM, leg=leg, first_round=0)
        assert refused(study.ask(VICTIM, request)) == Code.AGAINST_SCHEDULE


def test_a_made_up_model_is_not_trained_in_a_hand_over_leg() -> None:
    """160 made-up aggregates were trained in legs that the victim handed over to itself."""
    study = alone(examples(8, seed=5))
    experiment = study.experiment()
    experiment.leg()
    made_up = experiment.request(
        VICTIM,
        carries=Carries.AGGREGATE,
        sealed_in=None,
        payload=experiment.first_model.to_bytes(),
        recipient=VICTIM,
    )
    assert refused(study.ask(VICTIM, made_up)) == Code.AGAINST_SCHEDULE


def test_an_aggregation_brings_one_model_of_the_coordinators() -> None:
    study = alone(examples(8, seed=5))
    experiment = study.experiment(aggregation_period=2)
    experiment.leg()
    experiment.leg(**{name: experiment.request(name, recipient=None) for name in NAMES})
    experiment.envelopes.clear()
    experiment.leg()
    again = experiment.request(
        VICTIM,
        carries=Carries.AGGREGATE,
        sealed_in=None,
        payload=experiment.first_model.to_bytes(),
        recipient=None,
    )
    assert refused(study.ask(VICTIM, again)) == Code.AGAINST_SCHEDULE


def test_hand_overs_to_oneself_are_counted() -> None:
    """160 hand-overs went to the victim itself, and no limit counted them."""
    study = alone(examples(8, seed=5), maximum_fraction_per_recipient=0.01)
    experiment = study.experiment()
    expect(Trained, study.ask(VICTIM, experiment.request(VICTIM, recipient=VICTIM)))
    experiment.legs += 1
    experiment.envelopes[VICTIM] = decode_signed_reply(study.passed[-1].reply).payload
    reply = study.ask(VICTIM, experiment.request(VICTIM, recipient=VICTIM))
    assert refused(reply) == Code.TOO_MANY_TO_ONE


def gradient_step(study: Study, **training: Any) -> NDArray[np.float32]:
    """Have the victim train a first model of zeros for one round, readable."""
    chosen = MIRROR | training
    experiment = study.experiment(
        **EVERY_LEG, rounds=1, training=chosen, first_model=ZEROS.digest()
    )
    request = experiment.request(VICTIM, payload=ZEROS.to_bytes(), recipient=None)
    reply = expect(Trained, study.ask(VICTIM, request))
    weights: Any = ModelState.from_bytes(reply.payload).parameters["output.weight"]
    return np.asarray(weights)


def left_out_patient(study: Study) -> int:
    """Return who is not in the batch that follows from the seed that the coordinator knows."""
    seed = study.descriptor().training_seed
    kept = TrainingStreams(seed, NAMES.index(VICTIM)).batch(0, 8, 7)
    (patient,) = set(range(8)) - set(kept.tolist())
    return patient


def test_a_batch_of_all_but_one_does_not_show_the_one() -> None:
    """Two steps, with all patients and with all but one, gave the one: its batch was known."""
    here = examples(8, seed=5)

    def difference(**chosen: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        study = alone(here, minimum_batch=7, **chosen)
        patient = left_out_patient(study)
        everybody, but_one = 8 * gradient_step(study), 7 * gradient_step(study, **{"batch-size": 7})
        return (everybody - but_one)[here.labels[patient]], here.features[patient]

    shown, patient = difference(private_streams=False)
    assert np.allclose(shown, patient, atol=1e-4)
    seen = [difference() for _ in range(4)]  # one of eight batches is the expected one by chance
    assert not all(np.allclose(shown, patient, atol=1e-4) for shown, patient in seen)


def test_own_first_models_do_not_tell_who_sent() -> None:
    """They followed from the training seed and a position, which every member knows."""

    def distances(**chosen: Any) -> list[float]:
        study = new_study()
        for seed, name in enumerate(NAMES):
            in_process(study, name, partition(name, seed), policy(**chosen))
        experiment = study.experiment(init="own")
        found = []
        for position, sender in enumerate(NAMES):
            if sender == VICTIM:
                continue
            model = handed_to_victim(experiment, sender, carries=Carries.NOTHING, payload=b"")
            found.append(distance(own_model(experiment, position), model))
        return found

    # One step of training moves a model by less than half of what tells two first models apart.
    assert 2 * max(distances(private_streams=False)) < min(distances())


def own_model(experiment: Experiment, position: int) -> dict[str, Any]:
    descriptor = experiment.descriptor
    settings = TrainingSettings.parse(descriptor.training, source="test")
    seed = TrainingStreams(descriptor.training_seed, position).init_seed()
    task = TaskSpec(descriptor.shape, descriptor.classes)
    return Network(settings, task, seed=seed).arrays()[0]


def distance(one: dict[str, Any], other: ModelState) -> float:
    return sum(float(np.abs(one[name] - array).sum()) for name, array in other.parameters.items())


def test_whether_training_overflowed_does_not_show() -> None:
    """The next hospital refused what was not finite: 144 such questions gave two patients."""
    # Weights of 10³⁸ overflow for a patient with a value above 3.4, and for nobody else.
    huge = ModelState(ZEROS.parameters | {"output.weight": np.full((2, 4), 1e38, np.float32)})
    replies = []
    for value in (0.5, 3.5):
        study = alone(patients(np.array([value, 0, 0, 0], np.float32)))
        experiment = study.experiment(
            training=MIRROR | {"learning-rate": 0.1}, first_model=huge.digest()
        )
        request = experiment.request(VICTIM, recipient="Cedar", payload=huge.to_bytes())
        reply = expect(Trained, study.ask(VICTIM, request))
        bare = reply.model_copy(update={"audit": None, "payload": b""})
        replies.append((len(study.passed[-1].reply), bare))
        assert opened(experiment, reply.payload, 1, "Cedar").is_finite()
        experiment.legs += 1
        experiment.envelopes["Cedar"] = reply.payload
        expect(Trained, study.ask("Cedar", experiment.request("Cedar")))

    assert replies[0] == replies[1]


def test_no_figure_of_patients_leaves_by_default() -> None:
    """32 of 32 patients were read from the training losses of crafted models."""
    study = alone(examples(8, seed=5))
    experiment = study.experiment(**EVERY_LEG)
    reply = expect(Trained, study.ask(VICTIM, experiment.request(VICTIM, recipient=None)))
    figures = (reply.loss, reply.accuracy, reply.held_out_loss, reply.held_out_accuracy)
    assert figures == (None,) * 4


def test_an_expelled_member_receives_nothing() -> None:
    """Six of six models still went to a member that the pinned roster no longer had."""
    study = alone(examples(8, seed=5))
    experiment = study.experiment()
    left = [member for member in study.roster.members if member.name != "Cedar"]
    later = Roster.make(study.roster.study, 2, study.coordinator.public, left)
    restarted = Hospital(
        VICTIM,
        partition(VICTIM, 5),
        MappingStore(study.memories[VICTIM]),
        identity=study.identities[VICTIM],
        roster=later,
        policy=policy(),
    )
    study.hospitals[VICTIM] = restarted

    reply = study.ask(VICTIM, experiment.request(VICTIM, recipient="Cedar"))

    assert refused(reply) == Code.UNKNOWN_RECIPIENT
    expect(Trained, study.ask(VICTIM, experiment.request(VICTIM, recipient="Aspen")))


def test_a_policy_that_forbids_a_member_stops_running_experiments() -> None:
    """The operator's new policy counted for new experiments only."""
    study = alone(examples(8, seed=5))
    experiment = study.experiment()
    memory = study.memories[VICTIM]
    in_process(study, VICTIM, partition(VICTIM, 5), policy(members=["Aspen", "Birch", "Durmast"]))
    hospital = study.hospitals[VICTIM]
    assert isinstance(hospital, Hospital)
    study.hospitals[VICTIM] = hospital.with_store(MappingStore(memory))

    reply = study.ask(VICTIM, experiment.request(VICTIM, recipient="Aspen"))

    assert refused(reply) == Code.AGAINST_POLICY


def test_members_that_take_no_part_do_not_count_in_any_leg() -> None:
    """Of a later roster, a policy of more members counted those who had made no keys, too."""
    study = new_study()
    members = study.roster.members
    study.roster = Roster.make(study.roster.study, 2, study.coordinator.public, members)
    for seed, name in enumerate(NAMES):
        in_process(study, name, partition(name, seed))
    experiment = ThreeOfFour(study, study.descriptor())
    experiment.agree()
    experiment.make_keys()
    memory, request = study.memories[VICTIM], experiment.request(VICTIM, recipient="Aspen")

    def restart(minimum: int) -> None:
        hospital = in_process(study, VICTIM, partition(VICTIM, 1), policy(minimum_cohort=minimum))
        study.hospitals[VICTIM] = hospital.with_store(MappingStore(memory))

    restart(minimum=4)
    assert refused(study.ask(VICTIM, request)) == Code.AGAINST_POLICY
    restart(minimum=3)
    expect(Trained, study.ask(VICTIM, request))


class ThreeOfFour(Experiment):
    """An experiment in which the last member takes no part."""

    @property
    def members(self) -> tuple[str, ...]:
        return NAMES[:3]


def test_where_policy_forbids_plain_aggregation_no_model_is_readable() -> None:
    study = alone(examples(8, seed=5), plain_aggregation=False)
    experiment = Experiment(study, study.descriptor(**EVERY_LEG))
    assert refused(study.ask(VICTIM, experiment.set_up())) == Code.AGAINST_POLICY
