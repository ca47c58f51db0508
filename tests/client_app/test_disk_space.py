"""A hospital whose disk fills up says so, changes nothing, and continues when there is space."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from client_app.state.sqlite_store import SqliteStore
from operation import disk_space
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Refusal
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled
from tests.client_app.small_hospital import (
    IDENTITIES,
    LARGE,
    NAME,
    TRAINING,
    Code,
    descriptor,
    leg,
    member,
    model,
    plain,
    set_up,
)

UNLIMITED = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "memory.sqlite")
    yield opened
    opened.close()


def limit_pages(store: SqliteStore, number: int) -> None:
    """Let SQLite find no space beyond a number of pages, as on a full disk."""
    store._connection.execute(f"PRAGMA max_page_count = {number}")


def test_a_leg_is_refused_while_the_disk_is_full_and_trained_when_it_is_not(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    here = member().with_store(store)
    assert here.answer(set_up(descriptor(training=TRAINING | LARGE)))
    request = leg(model(**LARGE))

    limit_pages(store, 1)  # the pages that it has, and no more
    assert plain(here.answer(request)) == Refusal(code=Code.DISK_FULL)
    assert "disk full, no space left for" in caplog.text
    limit_pages(store, UNLIMITED)
    reply = plain(here.answer(request))

    elsewhere = member()
    elsewhere.answer(set_up(descriptor(training=TRAINING | LARGE)))
    assert reply == plain(elsewhere.answer(request))


def test_where_not_even_a_log_line_fits_the_code_is_sent_with_the_present_head(
    store: SqliteStore,
) -> None:
    limit_pages(store, 1)
    lines = -1
    while len(store.audit_lines()) > lines:  # until the last page is full
        lines = len(store.audit_lines())
        # A hospital that has just started has counted nothing: each refusal gets its line.
        reply = decode_signed_reply(member().with_store(store).answer(b"not a request"))

    assert isinstance(reply, Refusal)
    assert reply.code is Code.DISK_FULL
    assert reply.audit is not None
    assert reply.audit.sequence == lines
    assert reply.audit.is_by(IDENTITIES[NAME].public)


@pytest.mark.parametrize(
    ("free", "sign", "code"),
    [(2_500_000_000, "✓", 0), (999_000_000, "!", 0), (99_000_000, "✗", 1)],
)
def test_check_has_a_line_about_the_disk(
    free: int, sign: str, code: int, enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "free_bytes", lambda folder: free)

    done = feddc("check", "--folder", enrolled.folder.path)

    assert done.exit_code == code
    (line,) = [line for line in done.stdout.splitlines() if " disk: " in line]
    assert line.startswith(f"{sign} disk: ")
    assert f"free at {enrolled.folder.state}" in line
