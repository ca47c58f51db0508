"""An evil coordinator against a real agent: requests with one thing changed, and routes to one."""

import json

import numpy as np
import pytest

from client_app.hospital.agreement.policy import Policy
from client_app.hospital.refusal import Refused
from client_app.state.audit_report import read_audit
from learning.data import Examples, Partition
from protocol.messages import Carries, Refusal, Trained, TrainLeg
from tests.attacks.forgeries import payload, resigned, sealed, signed_by
from tests.attacks.refused_requests import REQUESTS
from tests.attacks.siege import Code, Siege, flipped
from tests.attacks.study import VICTIM, examples, expect, in_process, refused, whole_study


@pytest.mark.parametrize("attack", REQUESTS)
def test_a_request_is_refused(attack: str, siege: Siege) -> None:
    code, made = REQUESTS[attack]
    experiment = siege.running()
    siege.experiment = None  # a failure must not spoil the next attack
    honest = experiment.request(VICTIM)

    siege.refuses(made(experiment, honest), code)

    experiment.leg(**{VICTIM: honest})
    siege.experiment = experiment


def test_what_a_request_is_refused_for_is_the_one_thing_changed(siege: Siege) -> None:
    # The same makers, with nothing changed: what they make is accepted.
    for unchanged in (
        lambda e, honest: signed_by(e.study.coordinator)(e, honest),
        resigned(lambda header: header),
        payload(lambda data: data),
        # Any member can forge towards another: docs/threat-model.md.
        sealed(),
    ):
        experiment = siege.running()
        honest = experiment.request(VICTIM)
        siege.experiment = None
        reply = expect(Trained, siege.study.ask(VICTIM, unchanged(experiment, honest)))
        assert reply.leg == honest.leg


def test_every_byte_of_a_signed_request_matters(siege: Siege) -> None:
    experiment = siege.running()
    siege.experiment = None
    honest = experiment.request(VICTIM)
    data = siege.study.sign(honest)

    for at in range(0, len(data), 61):
        altered_byte = flipped(at)(data)
        code = refused(siege.study.ask(VICTIM, altered_byte))
        assert code in (Code.MALFORMED, Code.BAD_SIGNATURE), at
    for end in range(1, len(data), 149):
        code = refused(siege.study.ask(VICTIM, data[:end]))
        assert code in (Code.MALFORMED, Code.BAD_SIGNATURE), end

    experiment.leg(**{VICTIM: honest})
    siege.experiment = experiment


def test_refusals_do_not_depend_on_patients() -> None:
    def refusals(patients: Examples) -> list[tuple[str, int]]:
        study = whole_study()
        in_process(study, VICTIM, Partition(VICTIM, patients, patients))
        experiment = study.experiment()
        experiment.leg()
        experiment.leg()
        told = []
        for _, made in REQUESTS.values():
            reply = study.ask(VICTIM, made(experiment, experiment.request(VICTIM)))
            told.append((refused(reply), len(study.passed[-1].reply)))
        return told

    usual = examples(32, seed=1)
    others = Examples(-1000 * usual.features, np.zeros_like(usual.labels))
    assert refusals(usual) == refusals(others)


def test_the_same_bytes_again_get_the_same_answer_and_nothing_is_trained_twice(
    siege: Siege,
) -> None:
    experiment = siege.running()
    honest = siege.study.sign(experiment.request(VICTIM))
    siege.experiment = None
    first = siege.agent.answer(honest)

    assert siege.agent.answer(honest) == first
    lines, _ = read_audit(siege.agent.folder)
    assert json.loads(lines[-1])["reply"]["kind"] == "repeated"


def test_all_hand_overs_routed_to_one_hospital(siege: Siege) -> None:
    # The default policy allows twice a fair share and four standard deviations of bad luck.
    experiment = siege.study.experiment()

    def hand_over(leg: int, recipient: str) -> TrainLeg | bytes:
        if leg == 1:
            return experiment.request(VICTIM, recipient=recipient)
        experiment.legs = leg - 1
        carries = {"carries": Carries.ENVELOPE, "sealed_in": leg - 1}
        return sealed()(experiment, experiment.request(VICTIM, recipient=recipient, **carries))

    for leg in range(1, 50):
        reply = siege.study.ask(VICTIM, hand_over(leg, "Aspen"))
        if isinstance(reply, Refusal):
            break
        expect(Trained, reply)

    assert 20 < leg < 45
    siege.refuses(hand_over(leg, "Aspen"), Code.TOO_MANY_TO_ONE)
    expect(Trained, siege.study.ask(VICTIM, hand_over(leg, "Cedar")))


def test_random_routes_are_never_taken_for_an_attack() -> None:
    policy = Policy.parse({}, source="test")
    rng = np.random.default_rng(1)
    for members in (3, 4, 10, 50):
        routes = rng.integers(0, members - 1, 3000)
        for total in range(1, len(routes) + 1):
            policy.check_recipient(int((routes[:total] == routes[total - 1]).sum()), total, members)
    with pytest.raises(Refused):
        policy.check_recipient(60, 60, 10)
