"""After an experiment, neither coordinator nor hospitals have a byte of what was sent."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.client_app.stored_bytes import PIECE, found
from tests.federation.federation import Federation, federation, needs_nginx, wait_for

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]


@pytest.fixture(scope="module")
def study() -> Iterator[Federation]:
    # Large enough for models to fill pages of their own.
    with federation(model_options='{"hidden": [600]}', rounds=6, leg_timeout=60.0) as made:
        yield made


class Spy:
    """Remembers what passes through the SuperLink's database: a reader like any other."""

    def __init__(self, study: Federation) -> None:
        self.folder = study.study / "superlink"
        self.payloads: set[bytes] = set()

    def look(self) -> bool | None:
        """Copy all objects that are there now; return whether models have passed."""
        with closing(sqlite3.connect(self.folder / "state.db")) as database:
            rows = database.execute("SELECT content FROM objects WHERE length(content) > 5000")
            self.payloads |= {bytes(content) for (content,) in rows}
        return len(self.payloads) > 4 or None

    def left(self) -> list[bytes]:
        """Return what is still found in any file of the SuperLink's folder."""
        assert all(len(payload) > PIECE for payload in self.payloads)
        return found(self.payloads, self.folder)


def test_after_an_experiment_nothing_is_left_beside_the_running_superlink_and_agents(
    study: Federation,
) -> None:
    """21 readable models were found in the write-ahead log after experiments had ended.

    At hospitals, keys of closed experiments were found in free space of the agent's database.
    """
    spy = Spy(study)
    run = study.begin()
    wait_for(spy.look, "models in the database", 900)
    assert spy.left()
    keys = {path.read_bytes() for name in study.names for path in _keys(study, name).iterdir()}
    assert len(keys) == len(study.names)
    secrets = json.loads((study.experiment() / "secrets.json").read_text())
    seeds = [secrets["route-seed"].encode(), bytes.fromhex(secrets["route-seed"])]
    outcome = study.ended(run)
    assert outcome.code == 0, outcome.errors

    wait_for(lambda: not spy.left() or None, "erasure", 120)

    assert found(seeds, study.study) == []  # from which routes could be computed
    for name in study.names:
        assert found(keys | spy.payloads, study.hospital(name) / "state") == []
        assert list(_keys(study, name).iterdir()) == []


@pytest.mark.long
def test_after_a_stop_nothing_is_left_and_the_experiment_continues(study: Federation) -> None:
    spy = Spy(study)
    run = study.begin()
    wait_for(spy.look, "models in the database", 900)
    study.coordinator("stop")
    assert study.ended(run).code == 1

    wait_for(lambda: not spy.left() or None, "erasure", 120)

    outcome = study.run(command="resume")
    assert outcome.code == 0, outcome.errors


def test_when_the_services_are_down_nothing_is_left_even_of_an_unfinished_experiment(
    study: Federation,
) -> None:
    spy = Spy(study)
    run = study.begin()
    wait_for(spy.look, "models in the database", 900)

    study.coordinator("down")

    assert spy.left() == []
    assert study.ended(run).code == 1
    study.coordinator("up")
    outcome = study.run(command="resume")
    assert outcome.code == 0, outcome.errors


def _keys(study: Federation, name: str) -> Path:
    return study.hospital(name) / "state" / "keys"
