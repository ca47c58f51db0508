"""`feddc coordinator status`: what the coordinator can know of hospitals and of its own disk."""

import json
import time
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from client_app.enrol.enrolment import initialise
from client_app.hospital_folder import HospitalFolder
from operation import disk_space
from operation.cli import app
from server_app.study import study_members
from server_app.study.creation import create_study
from server_app.study.study_folder import Study

NAMES = ("Charite", "Mercy", "St Mary")
AGENT = "no answer from its agent: Flower error 2"
ANSWERED = time.time() - 2.5 * 3600


@pytest.fixture
def study(tmp_path: Path) -> Study:
    made = create_study(
        tmp_path / "study", name="hearts", address="localhost:1", listen="", internal_port=2
    )
    for name in NAMES:
        study_members.add(made, initialise(HospitalFolder(tmp_path / name), name, "")[0])
    study_members.write_roster(made)
    return made


def add_experiment(study: Study, name: str, *events: dict[str, object]) -> None:
    folder = study.experiments / name
    folder.mkdir(parents=True)
    start = {"event": "start", "legs": 9, "rounds": 9, "hospitals": NAMES}
    lines = [json.dumps(event) + "\n" for event in (start, *events)]
    (folder / "metrics.jsonl").write_text("".join(lines))


def hospital(leg: int, name: str, problem: str = "") -> dict[str, object]:
    return {"event": "hospital", "time": ANSWERED, "leg": leg, "hospital": name, "problem": problem}


def status(study: Study, *options: str) -> Result:
    done = CliRunner().invoke(
        app, ["coordinator", "status", "--study", str(study.folder), *options]
    )
    assert done.exit_code == 0, done.output
    return done


def test_a_dead_agent_and_a_full_disk_are_shown_with_the_last_leg_that_was_answered(
    study: Study,
) -> None:
    missing = {"Mercy": AGENT, "St Mary": "refused: disk-full"}
    add_experiment(
        study,
        "20260101-000000-aaaaaa",
        *(hospital(1, name) for name in NAMES),
        hospital(2, "Charite"),
        *(hospital(2, name, problem) for name, problem in missing.items()),
        {"event": "leg", "leg": 2, "ending": "hand-over", "missing": missing},
    )

    seen = json.loads(status(study, "--json").stdout)["hospitals"]

    assert [(one["name"], one["last_leg"], one["problem"]) for one in seen] == [
        ("Charite", 2, ""),
        ("Mercy", 1, AGENT),
        ("St Mary", 1, "refused: disk-full"),
    ]
    assert [one["last_answer"] for one in seen] == [ANSWERED] * 3
    rows = [line.split() for line in status(study).stdout.splitlines()]
    assert ["Mercy", "no", "never", "leg", "1,", "2", "h", "ago", *AGENT.split()] in rows


def test_a_hospital_that_answers_again_has_no_problem(study: Study) -> None:
    add_experiment(
        study,
        "20260101-000000-aaaaaa",
        hospital(1, "Mercy", AGENT),
        {"event": "leg", "leg": 1, "ending": "hand-over", "missing": {"Mercy": AGENT}},
        hospital(2, "Mercy"),
        {"event": "leg", "leg": 2, "ending": "hand-over", "missing": {}},
    )

    seen = {one["name"]: one for one in json.loads(status(study, "--json").stdout)["hospitals"]}

    assert (seen["Mercy"]["last_leg"], seen["Mercy"]["problem"]) == (2, "")


def test_a_hospital_that_has_not_answered_yet_is_shown_while_the_leg_runs(study: Study) -> None:
    add_experiment(
        study,
        "20260101-000000-aaaaaa",
        hospital(1, "Mercy"),
        {"event": "leg", "leg": 1, "ending": "hand-over", "missing": {}},
        {"event": "unanswered", "leg": 2, "hospitals": ["Mercy"], "seconds": 360.0},
    )

    seen = {one["name"]: one for one in json.loads(status(study, "--json").stdout)["hospitals"]}

    assert (seen["Mercy"]["last_leg"], seen["Mercy"]["problem"]) == (1, "no answer since 6 min")


def test_a_hospital_that_has_not_approved_is_shown_as_waiting(study: Study) -> None:
    folder = study.experiments / "20260101-000000-aaaaaa"
    folder.mkdir(parents=True)
    waiting = {"event": "approval", "hospitals": {"Mercy": "waiting for approval"}}
    (folder / "metrics.jsonl").write_text(json.dumps(waiting | {"fingerprint": "ABCD"}) + "\n")

    seen = {one["name"]: one for one in json.loads(status(study, "--json").stdout)["hospitals"]}

    assert seen["Mercy"]["problem"] == "waiting for approval"
    assert seen["Charite"]["problem"] == ""


def test_without_an_experiment_nothing_is_known_of_agents(study: Study) -> None:
    seen = json.loads(status(study, "--json").stdout)["hospitals"]

    assert {(one["last_leg"], one["problem"]) for one in seen} == {(None, "")}


@pytest.mark.parametrize(
    ("free", "text"),
    [(5_000_000_000, "5.0 GB free"), (50_000_000, "50.0 MB free; low: free some space")],
)
def test_the_coordinator_s_own_disk_is_shown(
    free: int, text: str, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "free_bytes", lambda folder: free)

    (line,) = [line for line in status(study).stdout.splitlines() if line.startswith("disk")]

    assert line.split(maxsplit=1)[1].startswith(text)
