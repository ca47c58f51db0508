"""An evil coordinator against a real agent: descriptors, and experiments that are over."""

from pathlib import Path

import pytest

from protocol.messages import Announcement, SetUp
from tests.attacks.refused_descriptors import DESCRIPTORS
from tests.attacks.siege import Code, Siege, close
from tests.attacks.study import VICTIM, Experiment, expect


@pytest.mark.parametrize("attack", DESCRIPTORS)
def test_a_descriptor_is_refused(attack: str, siege: Siege) -> None:
    code, change = DESCRIPTORS[attack]
    siege.running()
    honest = Experiment(siege.study, siege.study.descriptor())
    payload = change(siege.study, honest.descriptor)

    siege.refuses(SetUp(experiment=honest.id, payload=payload), code)

    expect(Announcement, siege.study.ask(VICTIM, honest.set_up()))
    close(siege.study, honest)


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
