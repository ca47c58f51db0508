"""An agent restored from an old backup notices, whatever has happened since."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_app.state.reset import reset_experiments
from client_app.state.sqlite_store import SqliteStore
from protocol.messages import Refusal, RefusalCode, Trained
from tests.attacks.study import Study, expect, in_process, new_study, partition, stored_at

VICTIM = "Birch"


class Restorable:
    """The victim's hospital, whose store can be put back to an earlier copy."""

    def __init__(self, study: Study, folder: Path) -> None:
        self._study, self._folder = study, folder
        self.store = SqliteStore(folder / "store.db")
        self._open()

    def _open(self) -> None:
        stored_at(self._study, VICTIM, self.store)

    def back_up(self) -> None:
        self.store.close()
        shutil.copy(self._folder / "store.db", self._folder / "backup.db")
        self.store = SqliteStore(self._folder / "store.db")
        self._open()

    def restore(self) -> None:
        self.store.close()
        shutil.copy(self._folder / "backup.db", self._folder / "store.db")
        self.store = SqliteStore(self._folder / "store.db")
        self._open()


@pytest.fixture
def study() -> Study:
    study = new_study(("Aspen", VICTIM, "Cedar"))
    for seed, name in enumerate(study.roster.names):
        in_process(study, name, partition(name, seed))
    return study


@pytest.fixture
def victim(study: Study, tmp_path: Path) -> Iterator[Restorable]:
    restorable = Restorable(study, tmp_path)
    yield restorable
    restorable.store.close()


@pytest.mark.parametrize("junk", [0, 1, 100], ids=lambda n: f"{n} requests since")
def test_a_restored_hospital_stops_however_far_its_trail_has_grown_again(
    study: Study, victim: Restorable, junk: int
) -> None:
    experiment = study.experiment()
    experiment.leg()
    victim.back_up()
    experiment.leg()

    victim.restore()
    for number in range(junk):
        study.hospitals[VICTIM].answer(b"junk %d" % number)
    refused = study.ask(VICTIM, experiment.request(VICTIM))

    assert expect(Refusal, refused).code is RefusalCode.ROLLED_BACK
    again = study.ask(VICTIM, experiment.request(VICTIM, seen=None))
    assert expect(Refusal, again).code is RefusalCode.ROLLED_BACK


def test_after_forgetting_a_new_experiment_is_served(study: Study, victim: Restorable) -> None:
    experiment = study.experiment()
    experiment.leg()
    victim.back_up()
    experiment.leg()
    victim.restore()
    assert isinstance(study.ask(VICTIM, experiment.request(VICTIM)), Refusal)

    reset_experiments(victim.store, study.identities[VICTIM])

    old = study.ask(VICTIM, experiment.request(VICTIM))
    assert expect(Refusal, old).code is RefusalCode.UNKNOWN_EXPERIMENT
    study.heads.clear()  # a new experiment has seen nothing yet
    new = study.experiment()
    assert all(isinstance(reply, Trained) for reply in new.leg().values())


def test_a_hospital_that_was_not_restored_goes_on(study: Study, victim: Restorable) -> None:
    experiment = study.experiment()
    experiment.leg()
    victim.back_up()
    study.hospitals[VICTIM].answer(b"junk")
    assert isinstance(experiment.leg()[VICTIM], Trained)
