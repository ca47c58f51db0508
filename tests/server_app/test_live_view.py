"""What the coordinator sees while an experiment runs."""

import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from operation.runs.history import approval_text, waiting_text
from server_app.experiment.live_view import ExperimentView, ago, watched

START = {"event": "start", "legs": 4, "rounds": 4, "hospitals": ["Charite", "Mercy", "St [b]Mary"]}


@dataclass
class Seen:
    name: str
    is_online: bool
    last_seen: float | None


def hospital(
    name: str, leg: int, problem: str = "", loss: float | None = None
) -> dict[str, object]:
    return {
        "event": "hospital",
        "time": 1000.0,
        "leg": leg,
        "hospital": name,
        "problem": problem,
        "loss": loss,
    }


def leg(number: int, **missing: str) -> dict[str, object]:
    return {
        "event": "leg",
        "leg": number,
        "ending": "aggregation",
        "missing": missing,
        "parked": list(missing),
        "loss": 0.5,
    }


def printed(watch: ExperimentView) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    console.print(watch.table(1090.0))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_table_has_last_seen_leg_loss_and_parked() -> None:
    watch = ExperimentView()
    for event in (START, hospital("Charite", 2, loss=0.25), hospital("Mercy", 2, "not connected")):
        watch.add(event)
    watch.add(leg(2, Mercy="not connected"))
    watch.see([Seen("Charite", True, 1090.0), Seen("Mercy", False, 910.0)])

    head, *rows = [line.split() for line in printed(watch)]

    assert head == ["hospital", "last", "seen", "leg", "loss"]
    # Whoever has something the matter comes first.
    assert rows[0] == ["Mercy", "3", "min", "ago", "–", "–", "parked,", "not", "connected"]
    assert rows[1] == ["Charite", "now", "2", "0.250"]
    assert rows[2][:2] == ["St", "[b]Mary"]  # a name is not markup


def test_a_hospital_that_is_back_is_no_longer_parked() -> None:
    watch = ExperimentView()
    for event in (START, hospital("Mercy", 1, "not connected"), leg(1, Mercy="not connected")):
        watch.add(event)
    for event in (hospital("Mercy", 2), leg(2)):
        watch.add(event)

    assert not any("parked" in line or "connected" in line for line in printed(watch))


def test_a_log_has_lines_for_who_is_missing_and_back() -> None:
    console = Console(file=io.StringIO(), width=200)
    with watched(console) as display:
        for event in (
            START,
            leg(1, Mercy="no answer in 60 s"),
            leg(2, Mercy="no answer in 60 s"),
            {"event": "waiting", "leg": 3, "problem": "leg 3: 1 of 3 hospitals answered"},
            {"event": "waiting", "leg": 3, "problem": "leg 3: 1 of 3 hospitals answered"},
            leg(4),
        ):
            display.event(event)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]

    assert [line for line in lines if "Mercy" in line] == [
        "leg 1: Mercy is missing (no answer in 60 s)",
        "leg 4: Mercy is back",
    ]
    assert lines.count("waiting: leg 3: 1 of 3 hospitals answered") == 1
    assert "leg 4/4" in lines[-2]


UNANSWERED = {"event": "unanswered", "leg": 2, "hospitals": ["Mercy"], "seconds": 60.2}


def test_who_has_not_answered_yet_is_named_while_the_leg_runs() -> None:
    watch = ExperimentView()
    for event in (START, hospital("Charite", 1), hospital("Mercy", 1), leg(1), UNANSWERED):
        watch.add(event)
    first = printed(watch)[1]
    assert first.startswith("Mercy ")
    assert first.rstrip().endswith("no answer since 1 min")
    assert waiting_text(watch.run.waiting) == "waiting for Mercy since 1 min"

    for event in (hospital("Mercy", 2), leg(2)):
        watch.add(event)
    assert watch.run.waiting is None
    assert not any("no answer" in line for line in printed(watch))


def test_a_log_names_who_has_not_answered_yet() -> None:
    console = Console(file=io.StringIO(), width=200)
    with watched(console) as display:
        for event in (START, leg(1), UNANSWERED, UNANSWERED | {"seconds": 360.0}, leg(2)):
            display.event(event)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]

    assert [line for line in lines if "waiting" in line] == [
        "leg 2: waiting for Mercy since 1 min",
        "leg 2: waiting for Mercy since 6 min",
    ]


def test_a_terminal_shows_bar_and_table_and_leaves_nothing_behind() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with watched(console) as display:
        display.event(START)
        display.event(hospital("Mercy", 1, loss=0.125))
        display.event(leg(1))
        display.nodes([Seen("Mercy", True, 1000.0)])

    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "leg 1/4" in shown
    assert "0.125" in shown


APPROVAL = {
    "event": "approval",
    "hospitals": {"Mercy": "waiting for approval"},
    "fingerprint": "ABCD EFGH",
}
APPROVAL_TEXT = (
    "waiting to begin: Mercy (waiting for approval); the experiment's fingerprint is ABCD EFGH"
)


def test_who_has_not_approved_is_named_until_the_experiment_begins() -> None:
    watch = ExperimentView()
    watch.see([Seen("Charite", True, 1090.0), Seen("Mercy", True, 1090.0)])
    watch.add(APPROVAL | {"hospitals": {"Charite": "waiting for approval"}})
    watch.add(APPROVAL)
    rows = printed(watch)
    assert rows[1].startswith("Mercy ")
    assert rows[1].rstrip().endswith("waiting for approval")
    assert not any("approval" in row for row in rows[2:])
    assert approval_text(watch.run.approval) == APPROVAL_TEXT

    watch.add(START)
    assert watch.run.approval is None
    assert not any("approval" in row for row in printed(watch))


def test_a_newcomer_that_has_not_approved_is_named_while_the_others_go_on() -> None:
    watch = ExperimentView()
    for event in (START, hospital("Charite", 1), leg(1), APPROVAL, hospital("Charite", 2), leg(2)):
        watch.add(event)
    assert printed(watch)[1].rstrip().endswith("waiting for approval")
    watch.add({"event": "generation", "generation": 2, "hospitals": ["Charite", "Mercy"]})
    assert not any("approval" in row for row in printed(watch))


def test_a_log_says_once_who_has_not_approved() -> None:
    console = Console(file=io.StringIO(), width=200)
    with watched(console) as display:
        for event in (APPROVAL, APPROVAL, START):
            display.event(event)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines.count(APPROVAL_TEXT) == 1


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (None, "never"),
        (95.0, "5 s ago"),
        (-100.0, "3 min ago"),
        (-7200.0, "2 h ago"),
        (101.0, "0 s ago"),
    ],
)
def test_times_are_said_in_units(moment: float | None, said: str) -> None:
    assert ago(moment, 100.0) == said
