"""Attack: files and replies whose text steers the terminal of the person who reads them.

Before, names of unknown fields were printed as they came: an escape sequence in a hospital's card,
in a roster or in a reply's header cleared the screen and printed "It is a member already".
"""

import io
import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from operation import terminal
from operation.cli import app
from protocol.message_bytes import MAGIC, decode_reply
from protocol.messages import MessageError
from protocol.study.card import MAX_BYTES, Card, CardError
from protocol.study.connection import Connection, ConnectionFileError
from protocol.study.roster import Roster, RosterError
from server_app.experiment.live_view import ExperimentView, watched

SCREEN = "\x1b[2J\x1b[H\x9b\u202e\nIt is a member already."


def test_a_card_with_escape_sequences_is_refused_in_one_harmless_line(tmp_path: Path) -> None:
    study, card = tmp_path / "study", tmp_path / "x.hospital.json"
    done = _coordinator("init", "--name", "hearts", "--address", "a.example:1", "--study", study)
    assert done.exit_code == 0
    card.write_text(json.dumps({"name": "Mercy", SCREEN: 1}))

    done = _coordinator("enrol", card, "--study", study)

    assert done.exit_code != 0
    assert len(done.output.splitlines()) == 1
    assert not set("\x1b\x9b\u202e") & set(done.output)


@pytest.mark.parametrize("parse", [Card.from_json, Connection.from_json, Roster.from_content])
def test_no_parser_repeats_what_it_does_not_know(parse: object) -> None:
    for document in (
        {SCREEN: 1},
        {"name": SCREEN},
        {"x" * (MAX_BYTES // 2): 1},
        {"members": {SCREEN: 1}},
    ):
        with pytest.raises((CardError, ConnectionFileError, RosterError)) as refused:
            parse(json.dumps(document, ensure_ascii=False).encode())  # type: ignore[operator]
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 1_000


@pytest.mark.parametrize("field", [{SCREEN: 1}, {"kind": SCREEN}, {"kind": "trained", SCREEN: 1}])
def test_a_reply_s_header_is_not_repeated(field: dict[str, object]) -> None:
    header = json.dumps(field, ensure_ascii=False).encode()
    with pytest.raises(MessageError) as refused:
        decode_reply(MAGIC + len(header).to_bytes(4, "big") + header)
    assert str(refused.value).isprintable()


def test_a_problem_of_a_hospital_is_shown_harmless_in_every_view() -> None:
    events = [
        {"event": "start", "legs": 1, "rounds": 1, "hospitals": ["Mercy", SCREEN]},
        {"event": "hospital", "time": 1.0, "leg": 1, "hospital": "Mercy", "problem": SCREEN},
        {"event": "waiting", "problem": SCREEN},
        {"event": "unanswered", "leg": 1, "hospitals": [SCREEN], "seconds": 70},
        {"event": "leg", "leg": 1, "ending": "aggregation", "missing": {SCREEN: SCREEN}},
    ]
    view, console = ExperimentView(), terminal.error_console()
    console.file, console.width = io.StringIO(), 400
    with watched(console) as lines:
        for event in events:
            view.add(event)
            lines.event(event)
    console.print(view.table(2.0))
    said = console.file.getvalue()
    assert said.count(r"\u202e") > 5
    assert not set("\x1b\x9b\u202e") & set(said)


def _coordinator(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["coordinator", *map(str, arguments)])
