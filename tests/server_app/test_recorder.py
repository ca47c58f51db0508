"""The recorder by itself: what it writes of each leg, and that it overwrites nothing."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from learning.local_data import load_dataset
from learning.trainer import TaskSpec
from protocol.messages import Closed, Trained
from protocol.schedule import Ending, Leg
from protocol.secure_sum.held_out_totals import HeldOutTotals
from server_app.config.run_config import Settings
from server_app.experiment.progress import closing_table
from server_app.run.evaluator import Evaluator
from server_app.run.recorder import Recorder
from strategies.session.exchange import Answer
from strategies.session.observer import LegReport
from tests.conftest import TINY
from tests.server_app.run_files import events


def recorder(folder: Path) -> Recorder:
    settings = Settings.from_run_config(TINY, source="test")
    dataset = load_dataset(settings.local, settings.algorithm.seed)
    task = TaskSpec(dataset.shape, len(dataset.classes))
    return Recorder(folder, settings, Evaluator(settings.training, task, dataset.test, seed=0))


def trained(**changes: Any) -> Trained:
    fields: dict[str, Any] = {"leg": 1, "sealed": False, "loss": 0.5, "accuracy": 0.25}
    fields |= {"held_out_loss": None, "held_out_accuracy": None}
    return Trained(**(fields | changes))


def report(answers: dict[str, Answer], **changes: Any) -> LegReport:
    fields: dict[str, Any] = {
        "leg": Leg(1, 0, 1, Ending.HAND_OVER),
        "asked": tuple(answers),
        "answers": answers,
        "missing": {},
        "parked": (),
        "seconds": 1.5,
    }
    return LegReport(**(fields | changes))


def _with(**figures: float) -> Trained:
    # Not checked, unlike what arrives: no reply has such figures.
    return trained().model_copy(update=figures)


def test_what_is_not_a_number_is_null(tmp_path: Path) -> None:
    notes = recorder(tmp_path / "run")
    answers = {
        "east": Answer(_with(loss=float("nan")), "", 0.1, 10, 20),
        "north": Answer(_with(loss=float("inf"), held_out_loss=float("-inf")), "", 0.1, 10, 20),
    }

    notes.leg_ended(report(answers))
    notes.failed("diverged")

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert [line.get("loss", "-") for line in lines] == [None, None, None, "-"]
    assert lines[0]["accuracy"] == 0.25


def test_a_hospital_that_did_not_answer_is_named_with_the_reason(tmp_path: Path) -> None:
    notes = recorder(tmp_path / "run")
    answers = {
        "east": Answer(trained(), "", 0.1, 10, 20),
        "north": Answer(None, "no answer in 5 s", 5.0, 10, 0),
    }
    missing = {"north": "no answer in 5 s", "south": "not connected"}
    gone = report(answers, asked=("east", "north", "south"), missing=missing, parked=("north",))

    notes.leg_ended(gone)
    notes.leg_ended(gone)

    leg = events(tmp_path / "run", "leg")[0]
    assert (leg["asked"], leg["answered"], leg["parked"]) == (3, 1, ["north"])
    assert leg["missing"] == missing
    assert leg["loss"] == 0.5
    lines = events(tmp_path / "run", "hospital")
    assert [line["problem"] for line in lines] == ["", "no answer in 5 s"] * 2
    assert notes.completed(notes.evaluator.first_model)["missing"] == {"north": 2, "south": 2}


def test_a_leg_without_any_answer_has_no_figures(tmp_path: Path) -> None:
    notes = recorder(tmp_path / "run")

    notes.leg_ended(report({"east": Answer(None, "gone", 5.0, 10, 0)}, missing={"east": "gone"}))

    leg = events(tmp_path / "run", "leg")[0]
    assert (leg["loss"], leg["accuracy"], leg["answered"]) == (None, None, 0)


def test_figures_that_hospitals_keep_are_left_out_of_the_mean(tmp_path: Path) -> None:
    notes = recorder(tmp_path / "run")
    silent = trained(loss=None, accuracy=None)

    notes.leg_ended(report({"a": Answer(silent, "", 1, 1, 1), "b": Answer(trained(), "", 1, 1, 1)}))
    notes.closed(
        {
            "a": Answer(Closed(held_out_loss=None, held_out_accuracy=None), "", 1, 1, 1),
            "b": Answer(Closed(held_out_loss=0.1, held_out_accuracy=0.75), "", 1, 1, 1),
            "c": Answer(None, "no answer", 1, 1, 1),
        },
        None,
    )

    assert events(tmp_path / "run", "leg")[0]["loss"] == 0.5
    assert [line["hospital"] for line in events(tmp_path / "run", "held-out")] == ["b"]


def test_totals_over_hospitals_are_in_the_summary_and_the_closing_table(tmp_path: Path) -> None:
    notes = recorder(tmp_path / "run")
    notes.closed({}, HeldOutTotals(3, 12.0, examples=(18, 2), correct=(18, 0)))
    summary = notes.completed(notes.evaluator.first_model)

    assert summary["held_out"] == {
        "hospitals": 3,
        "examples": 20,
        "loss": 0.6,
        "accuracy": 0.9,
        "balanced_accuracy": 0.5,
    }
    assert events(tmp_path / "run", "held-out-total")[0]["accuracy"] == 0.9
    text = io.StringIO()
    summary |= {"test_accuracy": None}
    Console(file=text, width=200).print(closing_table(summary, tmp_path / "run"))
    assert "90.0 % (the final aggregate, 20 examples of 3 hospitals)" in text.getvalue()


def test_one_readable_hand_over_and_the_run_was_not_sealed(tmp_path: Path) -> None:
    for sealed, expected in ((True, True), (False, False)):
        notes = recorder(tmp_path / f"run-{sealed}")
        answers = {
            "east": Answer(trained(sealed=True), "", 1, 1, 1),
            "north": Answer(trained(sealed=sealed), "", 1, 1, 1),
        }
        notes.leg_ended(report(answers))
        summary = notes.completed(notes.evaluator.first_model)
        assert summary["sealed"] is expected
        assert summary["readable_models"] == (0 if sealed else 1)


def test_a_resumed_run_sums_up_what_the_killed_one_did(tmp_path: Path) -> None:
    answers = {
        "east": Answer(trained(sealed=True), "", 0.1, 10, 20),
        "north": Answer(None, "gone", 0.1, 10, 0),
    }
    killed = recorder(tmp_path / "run")
    killed.started("x", {"east": 3, "north": 4}, 5)
    killed.leg_ended(report(answers, missing={"north": "gone"}))
    state = json.loads(json.dumps(killed.to_state()))
    killed.leg_ended(report(answers, missing={"north": "gone"}))  # and killed before the next plan
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"event": "leg", "l')  # in the middle of a line

    settings = Settings.from_run_config(TINY, source="test")
    resumed = Recorder(tmp_path / "run", settings, killed.evaluator, resumable=True)
    resumed.restore(state)
    resumed.leg_ended(report(answers, missing={"north": "gone"}))
    summary = resumed.completed(resumed.evaluator.first_model)
    assert summary["missing"] == {"north": 2}
    assert (summary["bytes_up"], summary["legs"]) == (40, 5)
    assert [e["event"] for e in events(tmp_path / "run") if e["event"] != "hospital"] == [
        "start",
        "leg",
        "leg",
        "resumed",
        "leg",
        "end",
    ]


def test_lines_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    notes = recorder(tmp_path / "run")

    notes.started("e1", {"east": 3, "north": None}, 7)

    (start,) = events(tmp_path / "run")
    assert start["examples"] == {"east": 3, "north": None}


def test_the_recorder_itself_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("precious\n")

    with pytest.raises(FileExistsError):
        recorder(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == "precious\n"


def test_bad_news_survives_a_kill_between_the_last_leg_and_the_summary(tmp_path: Path) -> None:
    answers = {"east": Answer(trained(), "", 0.1, 10, 20)}
    killed = recorder(tmp_path / "run")
    killed.leg_ended(report(answers, missing={"north": "gone"}, lost_chains=2, missed_rounds=11))

    settings = Settings.from_run_config(TINY, source="test")
    resumed = Recorder(tmp_path / "run", settings, killed.evaluator, resumable=True)
    resumed.restore(json.loads(json.dumps(killed.to_state())))
    summary = resumed.completed(resumed.evaluator.first_model)

    assert (summary["lost_chains"], summary["missed_rounds"]) == (2, 11)
    assert summary["missing"] == {"north": 1}


@pytest.mark.parametrize("keep", [False, True])
def test_a_real_study_s_routes_are_gone_when_it_has_closed_unless_they_are_kept(
    tmp_path: Path, keep: bool
) -> None:
    folder = tmp_path / "experiment"
    settings = Settings.from_run_config(TINY | {"keep-routes": keep}, source="test")
    dataset = load_dataset(settings.local, settings.algorithm.seed)
    task = TaskSpec(dataset.shape, len(dataset.classes))
    evaluator = Evaluator(settings.training, task, dataset.test, seed=0)
    notes = Recorder(folder, settings, evaluator, resumable=True)
    notes.started("e", {"east": 5, "north": 5, "south": 5}, legs=1)
    answers = {name: Answer(trained(), "", 0.1, 10, 20) for name in ("east", "north", "south")}
    notes.leg_ended(report(answers, routes=((0, "east", "north"), (1, "north", "east"))))
    routes = folder / "routes.jsonl"
    assert routes.stat().st_mode & 0o777 == 0o600
    assert "routes" in routes.read_text()

    notes.completed(evaluator.first_model)

    assert routes.exists() == keep
    (run,) = page_data(folder / "report-coordinator.html")["runs"]
    assert (run["map"]["window"] is not None) == keep
    assert "east" not in json.dumps(page_data(folder / "report.html"))


def page_data(page: Path) -> dict[str, Any]:
    text = page.read_text().partition('type="application/json">')[2].partition("</script>")[0]
    data: dict[str, Any] = json.loads(text)
    return data
