"""An evil coordinator against a real agent: descriptors, and experiments that are over."""

import pytest

from protocol.messages import Announcement, SetUp
from tests.attacks.refused_descriptors import DESCRIPTORS
from tests.attacks.siege import Code, Siege, close
from tests.attacks.study import VICTIM, Experiment, expect
from tests.client_app.stored_bytes import found


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
    """Keys of closed experiments were found in the store when several had been open at once.

    test_erasure.py of the client app has the attack with six of them.
    """
    experiment = siege.study.experiment()
    experiment.leg()
    secrets = [experiment.secret("member-key"), experiment.secret("generation-digest")]
    state = siege.agent.folder.state
    secrets += [path.read_bytes() for path in (state / "keys").glob(f"{experiment.id}@*")]
    assert len(found(secrets, state)) == 1  # the key that all is encrypted with
    experiment.close()

    assert found(secrets, state) == []
    siege.refuses(experiment.set_up(), Code.UNKNOWN_EXPERIMENT)
    siege.refuses(experiment.exchange(), Code.UNKNOWN_EXPERIMENT)
    siege.refuses(experiment.request(VICTIM), Code.UNKNOWN_EXPERIMENT)
