"""A hospital on a file system that is really full: it says so, loses nothing, and continues."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from client_app.state.sqlite_store import SqliteStore
from protocol.messages import Announcement, Refusal
from tests.client_app.small_hospital import (
    LARGE,
    TRAINING,
    Code,
    descriptor,
    leg,
    member,
    model,
    plain,
    set_up,
)
from tests.small_disk import fill, small_disk

REQUEST = {"training": TRAINING | LARGE}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "state", megabytes=8) as place:
        yield place


def test_a_leg_that_does_not_fit_is_trained_when_there_is_space(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(SqliteStore(disk / "memory.sqlite")) as store:
        here = member().with_store(store)
        assert isinstance(plain(here.answer(set_up(descriptor(**REQUEST)))), Announcement)
        request = leg(model(**LARGE))
        filler = fill(disk)

        assert plain(here.answer(request)) == Refusal(code=Code.DISK_FULL)
        (line,) = [r.getMessage() for r in caplog.records if "disk full" in r.getMessage()]
        # What could not be written, how much is needed, what to do.
        needed = re.search(r"no space left for (\S+): (\S+) kB are needed; free some", line)
        assert needed, line
        assert needed[1] == str(disk / "memory.sqlite")
        assert float(needed[2]) > 640  # 37·2000 + 2001·3 numbers of 8 bytes
        lines = len(store.audit_lines())
        filler.unlink()
        reply = plain(here.answer(request))
        assert len(store.audit_lines()) > lines

    elsewhere = member()
    elsewhere.answer(set_up(descriptor(**REQUEST)))
    assert reply == plain(elsewhere.answer(request))


def test_an_agent_that_is_restarted_on_a_full_disk_continues_with_what_it_had(disk: Path) -> None:
    with closing(SqliteStore(disk / "memory.sqlite")) as store:
        member().with_store(store).answer(set_up(descriptor(**REQUEST)))
        known = store.audit_lines()
    filler, request = fill(disk), leg(model(**LARGE))

    with closing(SqliteStore(disk / "memory.sqlite")) as store:
        assert plain(member().with_store(store).answer(request)) == Refusal(code=Code.DISK_FULL)
        assert store.audit_lines()[: len(known)] == known
        filler.unlink()
        reply = plain(member().with_store(store).answer(request))

    elsewhere = member()
    elsewhere.answer(set_up(descriptor(**REQUEST)))
    assert reply == plain(elsewhere.answer(request))


def test_an_experiment_whose_key_does_not_fit_begins_later(disk: Path) -> None:
    with closing(SqliteStore(disk / "memory.sqlite")) as store:
        here = member().with_store(store)
        filler = fill(disk)

        assert plain(here.answer(set_up(descriptor()))) == Refusal(code=Code.DISK_FULL)
        assert store.experiments() == []
        filler.unlink()
        assert isinstance(plain(here.answer(set_up(descriptor()))), Announcement)
