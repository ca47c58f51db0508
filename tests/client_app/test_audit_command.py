"""`feddc hospital audit`: what left, to whom, and whether the log is whole."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from itertools import pairwise

import pytest

from client_app.state.audit_log import AuditLog
from client_app.state.audit_report import models_sent
from client_app.state.sqlite_store import SqliteStore
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled


@pytest.fixture
def audited(enrolled: Enrolled) -> Enrolled:
    """A hospital that handed two models over, sent one for aggregation, and refused once."""
    store = SqliteStore(enrolled.folder.store_file)
    audit_log = AuditLog(store, enrolled.folder.identity())
    for leg, recipient in ((1, "Mercy"), (2, "[red]Mercy"), (3, "coordinator"), (4, "Mercy")):
        audit_log.append(
            {
                "kind": "train-leg",
                "experiment": "e",
                "leg": leg,
                "digest": "00",
                "bytes": 1_500_000,
            },
            {"kind": "trained", "bytes": 1_600_000, "digest": "11", "recipient": recipient},
        )
    audit_log.append({"digest": "22", "bytes": 17}, {"kind": "refusal", "refusal": "malformed"})
    store.close()
    return enrolled


def test_audit_shows_what_left_and_to_whom(audited: Enrolled) -> None:
    done = feddc("audit", "--folder", audited.folder.path)

    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1][0] == "1"
    assert rows[1][3:] == ["train-leg", "1", "1.5", "MB", "trained", "Mercy", "1.6", "MB", "–"]
    assert "[red]Mercy" in done.stdout  # a name is not markup
    assert rows[5][-1] == "malformed"
    assert "models sent to Mercy: 2" in done.stdout
    assert "models sent to coordinator: 1" in done.stdout
    assert "5 lines, complete and in order" in done.stdout


def test_audit_gives_the_lines_themselves(audited: Enrolled) -> None:
    done = feddc("audit", "--folder", audited.folder.path, "--json")

    lines = done.stdout.splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [1, 2, 3, 4, 5]
    for before, after in pairwise(lines):
        assert json.loads(after)["previous"] == hashlib.sha256(before.encode()).hexdigest()


Lines = list[bytes]
BREAKS: dict[str, tuple[Callable[[Lines], Lines], int]] = {
    "a line changed": (lambda lines: [lines[0].replace(b"Mercy", b"Marcy"), *lines[1:]], 2),
    "the last line changed": (
        lambda lines: [*lines[:-1], lines[-1].replace(b"malformed", b"old-leg")],
        5,
    ),
    "a line removed": (lambda lines: lines[:2] + lines[3:], 3),
    "the last line removed": (lambda lines: lines[:-1], 5),
    "all lines removed": (lambda lines: [], 1),
    "a line added": (lambda lines: [*lines, lines[-1]], 6),
    "two lines swapped": (lambda lines: [*lines[:2], lines[3], lines[2], lines[4]], 3),
    "no line at all": (lambda lines: [*lines[:3], b"\xff", lines[4]], 4),
    "another spelling of a line": (lambda lines: [lines[0] + b" ", *lines[1:]], 1),
}


@pytest.mark.parametrize("case", BREAKS)
def test_audit_names_the_first_broken_line(case: str, audited: Enrolled) -> None:
    change, broken = BREAKS[case]
    with sqlite3.connect(audited.folder.store_file) as connection:
        lines = [line for (line,) in connection.execute("SELECT line FROM audit")]
        connection.execute("DELETE FROM audit")
        for line in change(lines):
            connection.execute("INSERT INTO audit (line) VALUES (?)", (line,))
    connection.close()

    for form in ([], ["--json"]):
        done = feddc("audit", "--folder", audited.folder.path, *form)
        assert done.exit_code == 1
        assert f"the log is broken: line {broken} " in done.stderr


def test_a_hospital_that_was_never_asked_has_an_empty_log(enrolled: Enrolled) -> None:
    done = feddc("audit", "--folder", enrolled.folder.path)

    assert done.exit_code == 0
    assert "0 lines" in done.stdout
    assert not enrolled.folder.store_file.exists()


def test_a_masked_model_counts_when_the_sum_can_be_read_and_figures_do_not() -> None:
    masked = {"kind": "masked", "recipient": "coordinator", "readable": False}
    revealed = {"kind": "shares-revealed", "recipient": "coordinator", "readable": "sum of 3"}
    models, figures = revealed | {"content": "model"}, revealed | {"content": "figures"}
    replies = [masked, models, masked, models, masked, masked, figures]
    lines = [json.dumps({"request": {}, "reply": reply}).encode() for reply in replies]

    assert models_sent(lines) == {"coordinator, as part of a sum of 3": 2}
