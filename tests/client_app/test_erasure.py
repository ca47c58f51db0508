"""A hospital whose experiments have ended: no byte on its disk tells anything about them."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from client_app.agent.api import AgentApi, Health
from client_app.agent.process import expire_regularly
from client_app.state.audit_log import verify_lines
from client_app.state.experiment_store import ExperimentStore
from client_app.state.reset import reset_experiments
from client_app.state.sqlite_store import SqliteStore
from protocol.descriptor import Descriptor
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Close, Refusal, RefusalCode, Trained
from tests.attacks.study import (
    Experiment,
    Study,
    expect,
    in_process,
    new_study,
    partition,
    refused,
    stored_at,
)
from tests.client_app.stored_bytes import PIECE, found
from tests.fake_clock import FakeClock

VICTIM = "Birch"
DAY = 24 * 60 * 60
OPEN_AT_ONCE = 6
DIGEST_BYTES = 32
# A first model large enough to fill pages of its own, and FedProx, which stores the aggregate.
TRAINING = {
    "model": "mlp",
    "model-options": '{"hidden": [500]}',
    "batch-size": 8,
    "proximal-mu": 0.1,
}


class Victim:
    """A hospital with a real store, and everything secret that it ever stored."""

    def __init__(self, study: Study, folder: Path) -> None:
        self._study, self.folder, self.clock = study, folder, FakeClock()
        self.secrets: dict[str, set[bytes]] = {}
        self.open()

    def open(self) -> None:
        self.store = SqliteStore(self.folder / "memory.sqlite", self.clock)
        self.hospital = stored_at(self._study, VICTIM, self.store)

    def note_secrets(self, experiment: str) -> None:
        """Remember what is stored about an experiment now, its key file included."""
        noted = self.secrets.setdefault(experiment, set())
        with closing(sqlite3.connect(self.folder / "memory.sqlite")) as database:
            query = "SELECT name FROM memory WHERE name GLOB ?"
            names = [name for (name,) in database.execute(query, (f"{experiment}/*",))]
        assert f"{experiment}/sealing-key" in names
        for name in names:
            value = self.store.get(name) or b""
            if "/answer/" in name:  # the rest of a reply is in the audit log too
                value = decode_signed_reply(value[DIGEST_BYTES:]).payload
            if name.endswith("/descriptor"):  # the ledger keeps the settings, but not the seed
                value = Descriptor.from_bytes(value).training_seed.hex().encode()
            if len(value) >= PIECE:
                noted.add(value)
        noted |= {path.read_bytes() for path in (self.folder / "keys").glob(f"{experiment}@*")}

    def left_over(self, *experiments: str) -> list[bytes]:
        """Return the secrets of these experiments that a thief of the disk finds."""
        return found((s for name in experiments for s in self.secrets[name]), self.folder)


@pytest.fixture
def study() -> Study:
    study = new_study(("Aspen", VICTIM, "Cedar"))
    in_process(study, "Aspen", partition("Aspen", 0))
    in_process(study, "Cedar", partition("Cedar", 2))
    return study


@pytest.fixture
def victim(study: Study, tmp_path: Path) -> Iterator[Victim]:
    opened = Victim(study, tmp_path)
    yield opened
    opened.store.close()


def under_way(study: Study, victim: Victim, count: int = OPEN_AT_ONCE) -> list[Experiment]:
    """Open experiments, and let all of them train two legs in turns."""
    opened = [study.experiment(training=TRAINING) for _ in range(count)]
    for _ in range(2):
        for experiment in opened:
            experiment.leg()
            victim.note_secrets(experiment.id)
    return opened


class Stopped(BaseException):
    """The agent is stopped."""


def serve_for(hours: int, victim: Victim) -> None:
    """Let an agent serve the victim's hospital that nobody sends a request to."""
    clock, end = victim.clock, victim.clock.time + hours * 60 * 60

    class UntilTheEnd(FakeClock):
        def sleep(self, seconds: float) -> None:
            clock.time += seconds
            if clock.time > end:
                raise Stopped

    api = AgentApi(victim.hospital, Health(VICTIM, "", ""), maximum_bytes=1)
    with pytest.raises(Stopped):
        expire_regularly(api, victim.hospital, UntilTheEnd())


def test_of_closed_experiments_nothing_is_left_while_others_are_open(
    study: Study, victim: Victim
) -> None:
    """An attack found the sealing keys of closed experiments in 5 of 30 stores, with six open.

    SQLite leaves copies in the gaps of its pages, which `secure_delete` does not overwrite.
    """
    experiments = under_way(study, victim)
    closed: list[str] = []
    for experiment in experiments[:-1]:
        experiment.close()
        closed.append(experiment.id)
        assert victim.left_over(experiment.id) == []
    (still_open,) = victim.store.experiments()
    assert len(victim.left_over(still_open)) == 1  # its key, in its file
    assert all(isinstance(reply, Trained) for reply in experiments[-1].leg().values())
    assert victim.left_over(*closed) == []


def test_a_new_generation_leaves_nothing_of_the_former_ones_keys(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "memory.sqlite")
    present = ExperimentStore(store, "e1")
    old = {name: os.urandom(32) for name in ("descriptor", "sealing-key", "member-key")}
    new = {name: os.urandom(32) for name in ("descriptor", "sealing-key", "member-key")}
    for name, value in old.items():
        present.put(name, value)
    present.put("optimizer", b"stays" * 1000)
    for name, value in new.items():
        present.next_generation.put(name, value)
    (key,) = (tmp_path / "keys").iterdir()
    former = key.read_bytes()

    with store.transaction():
        present.begin_next_generation()

    assert {name: present.get(name) for name in new} == new
    assert present.get("optimizer") == b"stays" * 1000
    assert present.next_generation.descriptor is None
    assert found([former, *old.values()], tmp_path) == []
    store.close()


def test_of_experiments_that_were_reset_nothing_is_left(study: Study, victim: Victim) -> None:
    experiments = under_way(study, victim, 3)

    reset_experiments(victim.store, study.identities[VICTIM])

    assert victim.left_over(*(experiment.id for experiment in experiments)) == []
    assert list((victim.folder / "keys").iterdir()) == []


def test_an_experiment_that_is_never_closed_expires(
    study: Study, victim: Victim, caplog: pytest.LogCaptureFixture
) -> None:
    abandoned, *_ = under_way(study, victim, 1)
    victim.clock.time += 60 * DAY
    later, *_ = under_way(study, victim, 1)
    victim.clock.time += 30 * DAY
    assert isinstance(abandoned.leg()[VICTIM], Trained)  # on its last day

    victim.clock.time += 1 * DAY
    again = abandoned.set_up()
    requests = (abandoned.request(VICTIM), again, Close(experiment=abandoned.id, payload=b""))
    codes = {refused(study.ask(VICTIM, request)) for request in requests}

    assert codes == {RefusalCode.UNKNOWN_EXPERIMENT}
    assert f"experiment {abandoned.id} was agreed to more than 90 days ago" in caplog.text
    assert f"{abandoned.id} has expired" in caplog.text
    assert victim.left_over(abandoned.id) == []
    assert victim.store.experiments() == [later.id]
    assert isinstance(later.leg()[VICTIM], Trained)
    lines = victim.store.audit_lines()
    assert verify_lines(lines).broken is None
    assert sum(b'"kind":"expired"' in line for line in lines) == 1


def test_an_experiment_that_expired_while_the_agent_was_stopped_is_destroyed_at_its_start(
    study: Study, victim: Victim
) -> None:
    abandoned, *_ = under_way(study, victim, 1)
    victim.store.close()
    victim.clock.time += 91 * DAY

    victim.open()
    serve_for(0, victim)

    assert victim.left_over(abandoned.id) == []


def test_an_experiment_expires_at_an_agent_that_gets_no_requests(
    study: Study, victim: Victim
) -> None:
    abandoned, *_ = under_way(study, victim, 1)
    serve_for(89 * 24, victim)
    assert victim.left_over(abandoned.id)

    serve_for(25, victim)

    assert victim.left_over(abandoned.id) == []


def test_the_same_close_gets_the_same_reply_from_an_agent_that_was_started_again(
    study: Study, victim: Victim
) -> None:
    experiment, *_ = under_way(study, victim, 1)
    closing = study.sign(Close(experiment=experiment.id, payload=experiment.first_model.to_bytes()))
    first = victim.hospital.answer(closing)
    assert not isinstance(study.ask(VICTIM, closing), Refusal)
    reset_experiments(victim.store, study.identities[VICTIM])  # what has ended stays so
    victim.store.close()

    victim.open()

    assert victim.hospital.answer(closing) == first
    reply = study.ask(VICTIM, experiment.set_up())
    assert expect(Refusal, reply).code is RefusalCode.UNKNOWN_EXPERIMENT


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"short")])
def test_without_its_key_an_experiment_is_refused_and_the_others_are_served(
    study: Study, victim: Victim, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    lost, kept = under_way(study, victim, 2)
    victim.store.close()
    (path,) = (victim.folder / "keys").glob(f"{lost.id}@*")
    assert callable(damage)
    damage(path)
    victim.open()

    reply = study.ask(VICTIM, lost.request(VICTIM))

    assert expect(Refusal, reply).code is RefusalCode.UNKNOWN_EXPERIMENT
    assert str(path) in caplog.text
    assert isinstance(kept.leg()[VICTIM], Trained)
    study.experiment()  # and new ones begin


def test_a_backup_without_the_keys_reads_nothing_and_is_noticed(
    study: Study, victim: Victim
) -> None:
    experiment, *_ = under_way(study, victim, 1)
    victim.store.close()
    backup = victim.folder / "backup"
    shutil.copytree(victim.folder, backup, ignore=shutil.ignore_patterns("keys", "backup"))
    assert found(victim.secrets[experiment.id], backup) == []
    victim.open()
    experiment.leg()
    victim.store.close()
    shutil.rmtree(victim.folder / "keys")
    (backup / "memory.sqlite").replace(victim.folder / "memory.sqlite")

    victim.open()

    reply = study.ask(VICTIM, experiment.request(VICTIM))
    assert expect(Refusal, reply).code is RefusalCode.ROLLED_BACK
