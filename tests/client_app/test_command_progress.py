"""A hospital's commands show what they do, to people only."""

import json

from tests.client_app.conftest import Enrolled
from tests.client_app.test_evaluate_command import keep
from tests.commands.in_terminal import assert_shown_to_people_only, feddc


def test_commands_that_read_data_or_long_logs(enrolled: Enrolled) -> None:
    keep(enrolled.folder)
    here = ("--folder", enrolled.folder.path)
    for text, command in {
        "reading your data": ("evaluate", "e1"),
        "checking": ("check",),
        "verifying the audit log": ("audit",),
        "reading the audit log": ("status",),
        "adding up the ledger": ("ledger",),
    }.items():
        assert_shown_to_people_only(text, "hospital", *command, *here)


def test_an_evaluation_says_that_it_trains(enrolled: Enrolled) -> None:
    keep(enrolled.folder)
    here = ("--folder", enrolled.folder.path)
    both = feddc("hospital", "evaluate", *here).stderr
    assert "evaluating the study's model" in both
    assert "training on your data alone, 20 rounds" in both
    alone = feddc("hospital", "evaluate", "e1", "--without-alone", *here).stderr
    assert "training on your data" not in alone


def test_json_in_a_terminal_is_one_line_and_nothing_else(enrolled: Enrolled) -> None:
    done = feddc("hospital", "check", "--folder", enrolled.folder.path, "--json")
    assert json.loads(done.stdout)["ready"] is True
    assert done.stderr == ""
