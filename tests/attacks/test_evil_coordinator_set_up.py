"""An evil coordinator against a real agent: descriptors, and experiments that are over."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.messages import Announcement, RefusalCode, SetUp
from protocol.study.roster import Member, Roster
from tests.attacks.siege import STRANGER, Code, Siege, close
from tests.attacks.study import TRAINING, VICTIM, Experiment, Study, expect

Settings = dict[str, Any]


def another_roster(study: Study) -> bytes:
    """Return the digest of a roster with one hospital more: the coordinator's second identity."""
    members = [*study.roster.members, Member("Elder", STRANGER.public)]
    return Roster.make("attacked", 2, study.coordinator.public, members).digest


def training(settings: Settings) -> Callable[[Study], Settings]:
    return lambda _: {"training": TRAINING | settings}


DESCRIPTORS: dict[str, tuple[RefusalCode, Callable[[Study], Settings]]] = {
    "another roster": (Code.ANOTHER_ROSTER, lambda study: {"roster": another_roster(study)}),
    "no roster": (Code.ANOTHER_ROSTER, lambda _: {"roster": bytes(32)}),
    "models that travel readable": (Code.AGAINST_POLICY, lambda _: {"sealed": False}),
    "too many rounds": (Code.AGAINST_POLICY, lambda _: {"rounds": 100_001}),
    "examples of another shape": (Code.DESCRIPTOR_REFUSED, lambda _: {"shape": (5,)}),
    "one class": (Code.DESCRIPTOR_REFUSED, lambda _: {"classes": 1}),
    "a model not on the list": (
        Code.AGAINST_POLICY,
        training({"model": "linear", "model-options": "{}"}),
    ),
    "a model nobody installed": (Code.DESCRIPTOR_REFUSED, training({"model": "gpt"})),
    "a model by its path": (Code.DESCRIPTOR_REFUSED, training({"model": "../../evil.py"})),
    "batches of one patient": (Code.AGAINST_POLICY, training({"batch-size": 1})),
    "giant steps": (Code.AGAINST_POLICY, training({"learning-rate": 10.5})),
    "a setting nobody knows": (Code.DESCRIPTOR_REFUSED, training({"upload": True})),
    "a layer of a million": (
        Code.DESCRIPTOR_REFUSED,
        training({"model-options": '{"hidden": [1000000]}'}),
    ),
    "half a megabyte of spaces": (
        Code.MALFORMED,
        training({"model-options": "{}" + " " * 500_000}),
    ),
}


@pytest.mark.parametrize("attack", DESCRIPTORS)
def test_a_descriptor_is_refused(attack: str, siege: Siege) -> None:
    code, changes = DESCRIPTORS[attack]
    siege.running()
    honest = Experiment(siege.study, siege.study.descriptor())
    evil = honest.descriptor.model_copy(update=changes(siege.study))

    siege.refuses(SetUp(experiment=honest.id, payload=evil.to_bytes()), code)

    expect(Announcement, siege.study.ask(VICTIM, honest.set_up()))
    close(siege.study, honest)


def test_an_experiment_is_agreed_to_once(siege: Siege) -> None:
    experiment = siege.running()
    evil = experiment.descriptor.model_copy(update={"rounds": 999})

    siege.refuses(
        SetUp(experiment=experiment.id, payload=evil.to_bytes()), Code.CONFLICTING_REQUEST
    )
    siege.refuses(SetUp(experiment="e0", payload=experiment.descriptor.to_bytes()), Code.MALFORMED)
    siege.refuses(
        SetUp(experiment=experiment.id, payload=experiment.descriptor.to_bytes() + b" "),
        Code.MALFORMED,
    )


def test_what_was_closed_stays_closed_and_its_keys_are_gone(siege: Siege) -> None:
    experiment = siege.study.experiment()
    experiment.leg()
    secrets = [experiment.secret("member-key"), experiment.secret("generation-digest")]
    assert all(is_somewhere(secret, siege.agent.folder.state) for secret in secrets)
    experiment.close()

    assert not any(is_somewhere(secret, siege.agent.folder.state) for secret in secrets)
    siege.refuses(experiment.set_up(), Code.UNKNOWN_EXPERIMENT)
    siege.refuses(experiment.exchange(), Code.UNKNOWN_EXPERIMENT)
    siege.refuses(experiment.request(VICTIM), Code.UNKNOWN_EXPERIMENT)


def is_somewhere(secret: bytes, folder: Path) -> bool:
    return any(secret in file.read_bytes() for file in folder.iterdir())
