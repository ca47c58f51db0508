"""An evil coordinator against a real agent whose operator approves each experiment.

Before experiments needed an approval, every descriptor that the policy allowed began at once: each
of these attacks was served.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from client_app.state.asked_experiments import asked_experiments
from client_app.state.audit_report import read_audit
from client_app.state.decisions import DecisionFile
from protocol.approval import approval_fingerprint
from protocol.descriptor import Descriptor
from protocol.messages import Announcement
from tests.attacks.siege import Code, Siege
from tests.attacks.study import TRAINING, VICTIM, Experiment, expect, real_agent, whole_study

MAXIMUM = 4


@pytest.fixture(scope="module")
def siege() -> Iterator[Siege]:
    study = whole_study()
    with real_agent(study, VICTIM, approval='"each"', maximum_experiments=MAXIMUM) as agent:
        yield Siege(study, agent)


def asked(siege: Siege, **changes: Any) -> Experiment:
    return Experiment(siege.study, siege.study.descriptor(**changes))


def decide(siege: Siege, descriptor: Descriptor, decision: Any) -> None:
    """Decide as the operator's command does."""
    fingerprint = approval_fingerprint(descriptor, siege.study.roster)
    file = DecisionFile(siege.agent.folder.decisions_file)
    file.record(descriptor.experiment, fingerprint, decision)


def waiting(siege: Siege) -> list[str]:
    listed = asked_experiments(siege.agent.folder)
    return [one.experiment for one in listed if one.state == "waiting"]


def test_nothing_is_served_before_the_operator_has_approved(siege: Siege) -> None:
    experiment = asked(siege)
    siege.refuses(experiment.set_up(), Code.WAITING_FOR_APPROVAL)
    siege.refuses(experiment.request(VICTIM), Code.UNKNOWN_EXPERIMENT)
    siege.refuses(experiment.exchange({VICTIM: b"key"}), Code.UNKNOWN_EXPERIMENT)
    decide(siege, experiment.descriptor, "rejected")
    siege.refuses(experiment.set_up(), Code.REJECTED)


def test_an_approval_is_no_approval_of_other_settings(siege: Siege) -> None:
    """The same id with one setting changed: more rounds, more aggregations, another seed."""
    experiment = asked(siege)
    siege.refuses(experiment.set_up(), Code.WAITING_FOR_APPROVAL)
    decide(siege, experiment.descriptor, "approved")
    for change in (
        {"rounds": experiment.descriptor.rounds + 1},
        {"aggregation_period": 1},
        {"training": TRAINING | {"batch-size": 2}},
    ):
        changed = Experiment(siege.study, experiment.descriptor.model_copy(update=change))
        siege.refuses(changed.set_up(), Code.WAITING_FOR_APPROVAL)
        decide(siege, changed.descriptor, "rejected")
    expect(Announcement, siege.study.ask(VICTIM, experiment.set_up()))


def test_a_flood_of_experiments_displaces_nothing_and_fills_nothing(siege: Siege) -> None:
    """A hundred set-ups with descriptors as long as they may be; the first ones keep waiting."""
    long = TRAINING | {"model-options": '{"hidden": [3]}' + " " * 200_000}
    first = asked(siege)
    siege.refuses(first.set_up(), Code.WAITING_FOR_APPROVAL)
    before = sum(file.stat().st_size for file in siege.agent.folder.state.iterdir())
    room = MAXIMUM - 1 - 1  # one experiment has begun, one waits
    codes = [
        siege.study.ask(VICTIM, asked(siege, training=long).set_up()).code  # type: ignore[union-attr]
        for _ in range(100)
    ]
    assert codes == [Code.WAITING_FOR_APPROVAL] * room + [Code.AGAINST_POLICY] * (100 - room)
    assert waiting(siege)[0] == first.id
    assert len(waiting(siege)) == room + 1
    # A hundred lines of the audit log; nothing of the 20 MB that were sent.
    after = sum(file.stat().st_size for file in siege.agent.folder.state.iterdir())
    assert after - before < 300_000
    lines, verdict = read_audit(siege.agent.folder)
    assert verdict.broken is None
    assert json.loads(lines[-1])["reply"]["refusal"] == Code.AGAINST_POLICY
    decide(siege, first.descriptor, "approved")
    expect(Announcement, siege.study.ask(VICTIM, first.set_up()))
