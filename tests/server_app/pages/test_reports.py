"""Reports: what is handed out tells nothing of single hospitals, and pages are whole files."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.notebook.run_result import RunResult
from operation.cli import app
from operation.runs.event_file import FILE_NAME, ROUTES, EventWriter
from operation.runs.history import RunHistory
from server_app.pages.report import COORDINATOR, PUBLIC, write_reports
from server_app.pages.run_view import RunRecord, coordinator_view, public_view
from server_app.run.accuracy_plot import accuracy_figure

# No two of these are equal, and none can be the mean of others.
HOSPITALS = ("Anna-canary", "Barts-canary", "Charite-canary", "Dom-canary")


def own_figures(position: int, leg: int) -> dict[str, float]:
    """Return figures of one hospital that nothing else on a page can contain."""
    digits = 7919 * (position + 1) + 13 * leg
    return {
        "loss": float(f"0.{digits}1"),
        "accuracy": float(f"0.{digits}3"),
        "seconds": float(f"{digits}.7"),
        "bytes_up": 1_000_000 + 37 * digits,
        "bytes_down": 2_000_000 + 41 * digits,
        "examples": 50_000 + digits,
    }


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a finished study of four hospitals with a canary for every figure."""
    return finished_study(tmp_path)


def finished_study(tmp_path: Path, publishing: Sequence[str] = ()) -> Path:
    tmp_path.mkdir(exist_ok=True)
    metrics = EventWriter(tmp_path / FILE_NAME, append=False)
    routes = EventWriter(tmp_path / ROUTES, append=False, mode=0o600)
    examples = {name: own_figures(p, 0)["examples"] for p, name in enumerate(HOSPITALS)}
    metrics.write(
        "start",
        experiment="e",
        legs=6,
        rounds=6,
        hospitals=list(HOSPITALS),
        examples=examples,
        publishing=list(publishing),
    )
    for leg in range(1, 7):
        figures = [own_figures(position, leg) for position in range(len(HOSPITALS))]
        for name, own in zip(HOSPITALS, figures, strict=True):
            own = {key: value for key, value in own.items() if key != "examples"}
            metrics.write("hospital", leg=leg, hospital=name, problem="", **own)
        ending = "aggregation" if leg % 3 == 0 else "hand-over"
        chains = [
            [chain, HOSPITALS[(chain + leg) % 4], HOSPITALS[(chain + leg + 1) % 4]]
            for chain in range(4)
        ]
        routes.write("routes", leg=leg, ending=ending, chains=chains)
        metrics.write(
            "leg",
            leg=leg,
            last_round=leg - 1,
            ending=ending,
            answered=len(HOSPITALS),
            missing={HOSPITALS[0]: "not connected"} if leg == 2 else {},
            parked=[HOSPITALS[0]] if leg == 2 else [],
            loss=mean([own["loss"] for own in figures]),
            accuracy=mean([own["accuracy"] for own in figures]),
            lost_chains=0,
            missed_rounds=1,
        )
    for position, name in enumerate(HOSPITALS):
        metrics.write(
            "held-out", hospital=name, loss=1.0, accuracy=float(f"0.{8311 + 10 * position}7")
        )
    metrics.write("end", status="completed", reason="")
    config = {"rounds": 6, "daisy-period": 1, "aggregation-period": 3, "seed": 271828}
    config |= {"codebook": "/home/anna/path-canary/codebook.toml", "labels": "~/path-canary.csv"}
    (tmp_path / "settings.json").write_text(json.dumps(config))
    summary = {"mean_held_out_accuracy": 0.81125, "sealed": True, "seconds": 12.0}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    return tmp_path


def test_before_the_first_leg_a_page_shows_no_zeros_as_results(tmp_path: Path) -> None:
    waiting = dict.fromkeys(HOSPITALS, "waiting for approval")
    metrics = EventWriter(tmp_path / FILE_NAME, append=False)
    metrics.write("approval", hospitals=waiting, fingerprint="ABCD", deadline=0.0)
    (tmp_path / "settings.json").write_text(json.dumps({"rounds": 6, "aggregation-period": 3}))
    public, private = (data_of(page)["runs"][0] for page in write_reports(tmp_path))
    for shown in (public, private):
        assert shown["state"] == "waiting for approval"
        assert (
            not {"rounds", "legs", "sent", "lost chains", "missed rounds"}
            & dict(shown["facts"]).keys()
        )
    assert {one["state"] for one in private["hospitals"]} == {"waiting for approval"}


def data_of(page: Path) -> dict[str, Any]:
    found = re.search(r'<script id="data"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def canaries(hospitals: Sequence[str] = HOSPITALS) -> set[str]:
    """Return these hospitals' names, figures, counts and times, as a file could write them."""
    found = set(hospitals)
    for position in map(HOSPITALS.index, hospitals):
        found.add(str(8311 + 10 * position))
        for leg in range(7):
            own = own_figures(position, leg)
            found |= {str(own[key]) for key in ("bytes_up", "bytes_down", "seconds", "examples")}
            for key in ("loss", "accuracy"):
                found |= {f"{own[key]:.5g}", f"{100 * own[key]:.5g}"}
    return found


def times(folder: Path) -> set[str]:
    """Return the seconds in which anything happened."""
    lines = (folder / FILE_NAME).read_text().splitlines()
    return {str(int(json.loads(line)["time"])) for line in lines}


def handed_out(folder: Path, *options: str) -> dict[str, str]:
    """Make everything of a run that may be handed out; return what is in each file."""
    commands = {
        "report.html": ["page", folder],
        "both.html": ["page", folder, folder, "--output", folder / "both.html"],
        "metrics.csv": ["export", folder, *options],
        "tensorboard": ["export", folder, "--to", "tensorboard", *options],
    }
    for command in commands.values():
        done = CliRunner().invoke(app, ["lab", *map(str, command)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    files = [folder / name for name in commands if name != "tensorboard"]
    files += (folder / "tensorboard").iterdir()
    return {
        file.name: json.dumps(data_of(file))
        if file.suffix == ".html"
        else file.read_bytes().decode("latin-1")
        for file in files
    }


def test_no_file_that_is_handed_out_tells_of_one_hospital(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    for name, content in handed_out(folder).items():
        assert [canary for canary in canaries() if canary in content] == [], name
        if "tfevents" not in name:  # these have the time of the export
            assert [time for time in times(folder) if time in content] == [], name
        assert "path-canary" not in content, name
    for name in ("report.html", "metrics.csv"):  # they are not just empty
        assert "accuracy" in handed_out(folder)[name]


def test_of_a_hospital_that_publishes_its_figures_are_handed_out_and_nothing_else(
    tmp_path: Path,
) -> None:
    folder = finished_study(tmp_path / "study", publishing=["Barts-canary"])
    files = handed_out(folder, "--hospitals")
    others = canaries([name for name in HOSPITALS if name != "Barts-canary"])
    for name, content in files.items():
        assert [canary for canary in others if canary in content] == [], name
        assert "Barts-canary" in content, name
    own = own_figures(1, 6)
    assert str(own["loss"]) in files["metrics.csv"]
    (run,) = data_of(folder / PUBLIC)["runs"]
    assert run["published"] == [
        {
            "name": "Barts-canary",
            "examples": own_figures(1, 0)["examples"],
            "loss": own["loss"],
            "accuracy": 0.83217,
        }
    ]
    (losses,) = (chart for chart in run["charts"] if chart["title"] == "Loss at each hospital")
    assert [series["label"] for series in losses["series"]] == ["Barts-canary"]
    # Bytes, times and absences are no figures of `metrics`.
    for key in ("bytes_up", "bytes_down", "seconds"):
        assert str(own[key]) not in json.dumps(run)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Path:
    """Change the events of a run, or leave some out."""
    events = [json.loads(line) for line in (folder / FILE_NAME).read_text().splitlines()]
    kept = [changed for event in events if (changed := change(event)) is not None]
    (folder / FILE_NAME).write_text("".join(json.dumps(event) + "\n" for event in kept))
    return folder


def labels(view: dict[str, Any], title: str) -> set[str]:
    charts = [chart for chart in view["charts"] if chart["title"] == title]
    return {series["label"] for chart in charts for series in chart["series"]}


def test_each_figure_needs_three_hospitals_of_its_own(folder: Path) -> None:
    """All four disclose their loss, two their accuracy: only the loss is pooled."""
    (training, _) = accuracy_figure(RunHistory.read(folder)).axes[0].lines
    assert len(training.get_xdata()) == 6

    def change(event: dict[str, Any]) -> dict[str, Any]:
        is_few = event.get("hospital") in HOSPITALS[:2] and event["event"] == "hospital"
        return event | {"accuracy": None} if is_few else event

    view = public_view(RunRecord.read(rewritten(folder, change)))
    assert labels(view, "Loss") == {"training, mean over hospitals"}
    assert labels(view, "Accuracy") == set()
    (training, _) = accuracy_figure(RunHistory.read(folder)).axes[0].lines
    assert len(training.get_xdata()) == 0
    rows = RunResult(folder).rows_to_hand_out(with_hospitals=False)
    assert {row["metric"] for row in rows} == {"loss"}


def test_two_hospitals_that_disclose_their_accuracy_only_are_not_a_secure_sum(folder: Path) -> None:
    def change(event: dict[str, Any]) -> dict[str, Any]:
        if event["event"] != "hospital":
            return event
        few = HOSPITALS[:2]
        return event | {"loss": None} | ({} if event["hospital"] in few else {"accuracy": None})

    view = public_view(RunRecord.read(rewritten(folder, change)))
    assert labels(view, "Accuracy") == set()


@pytest.mark.parametrize(("answered", "is_shown"), [(2, False), (3, True)])
def test_a_secure_sum_of_two_is_not_handed_out(folder: Path, answered: int, is_shown: bool) -> None:
    def change(event: dict[str, Any]) -> dict[str, Any] | None:
        if event["event"] in ("hospital", "held-out"):
            return None
        sums = {"answered": answered, "held_out_accuracy": 0.625, "held_out_loss": 0.5}
        return event | sums if event["event"] == "leg" else event

    run = RunRecord.read(rewritten(folder, change))
    run.summary = {}
    view = public_view(run)
    held_out = "held-out, mean over hospitals"
    assert (held_out in labels(view, "Accuracy")) == is_shown
    assert (["held-out accuracy, mean over hospitals", "62.5 %"] in view["facts"]) == is_shown
    rows = RunResult(folder).rows_to_hand_out(with_hospitals=False)
    assert bool(rows) == is_shown


def test_a_mean_beside_published_losses_does_not_tell_the_others(tmp_path: Path) -> None:
    """Anna publishes; in leg 2 only two others are in the mean, which would tell their sum."""
    folder = finished_study(tmp_path / "study", publishing=HOSPITALS[:1])

    def change(event: dict[str, Any]) -> dict[str, Any] | None:
        is_gone = event.get("hospital") == HOSPITALS[3] and event.get("leg") == 2
        return None if is_gone else event

    (loss,) = (
        chart
        for chart in public_view(RunRecord.read(rewritten(folder, change)))["charts"]
        if chart["title"] == "Loss"
    )
    assert loss["series"][0]["x"] == [1, 3, 4, 5, 6]
    rows = RunResult(folder).rows_to_hand_out(with_hospitals=True)
    assert {row["leg"] for row in rows if row["metric"] == "loss" and not row["hospital"]} == {
        *(1, 3, 4, 5, 6)
    }
    rows = RunResult(folder).rows_to_hand_out(with_hospitals=False)  # the mean of three alone
    assert {row["leg"] for row in rows if row["metric"] == "loss"} == {1, 2, 3, 4, 5, 6}


def test_what_is_handed_out_has_no_route_and_no_hospital_s_figure(folder: Path) -> None:
    public, private = write_reports(folder)
    shown = json.dumps(data_of(public))
    assert [canary for canary in canaries() if canary in shown] == []
    # The same canaries are on the coordinator's page: the test would notice them.
    kept = json.dumps(data_of(private))
    assert [name for name in HOSPITALS if name not in kept] == []
    assert any(canary in kept for canary in canaries() - set(HOSPITALS))
    (run,) = data_of(private)["runs"]
    assert run["map"]["window"]["chains"]
    (handed,) = data_of(public)["runs"]
    assert "map" not in handed
    assert "hospitals" not in handed
    assert handed["published"] == []
    assert handed["forest"] is None


def test_no_page_has_the_seed(folder: Path) -> None:
    for page in write_reports(folder):
        assert "271828" not in json.dumps(data_of(page))


def test_the_coordinator_s_page_is_for_its_owner_only(folder: Path) -> None:
    write_reports(folder)
    assert (folder / COORDINATOR).stat().st_mode & 0o777 == 0o600
    assert (folder / PUBLIC).stat().st_mode & 0o777 == 0o644


def test_a_mean_of_two_hospitals_is_not_handed_out(folder: Path) -> None:
    run = RunRecord.read(folder)
    pooled = [chart["series"][0]["label"] for chart in public_view(run)["charts"]]
    assert pooled == ["training, mean over hospitals"] * 2

    lines = (folder / FILE_NAME).read_text().splitlines()
    few = [
        line
        for line in lines
        if not (
            json.loads(line)["event"] in ("hospital", "held-out")
            and json.loads(line)["hospital"] in HOSPITALS[2:]
        )
    ]
    (folder / FILE_NAME).write_text("\n".join(few) + "\n")
    run = RunRecord.read(folder)
    view = public_view(run)
    assert view["charts"] == []
    assert not any("held-out" in name for name, _ in view["facts"])
    assert coordinator_view(run)["charts"] != []


def test_hospitals_that_publish_are_in_the_forest_plot_and_others_are_not(folder: Path) -> None:
    run = RunRecord.read(folder)
    run.history.hospitals["Barts-canary"].publishes = True
    forest = public_view(run)["forest"]
    assert [row["name"] for row in forest["rows"]] == ["Barts-canary"]
    assert forest["pooled"] == 0.8113
    assert len(coordinator_view(run)["forest"]["rows"]) == 4


def test_a_row_that_would_give_another_hospital_away_is_not_published(folder: Path) -> None:
    """Two of four publish: the mean of all would tell the sum of the other two."""
    run = RunRecord.read(folder)
    for name in HOSPITALS[:2]:
        run.history.hospitals[name].publishes = True
    assert public_view(run)["forest"] is None
    for name in HOSPITALS[2:]:
        run.history.hospitals[name].publishes = True
    assert len(public_view(run)["forest"]["rows"]) == 4


def test_why_a_run_failed_is_for_the_coordinator_because_it_names_hospitals(folder: Path) -> None:
    end = {"status": "failed", "reason": "Anna-canary did not answer"}
    public, private = write_reports(folder, end=end)
    assert "Anna-canary" not in public.read_text()
    assert data_of(public)["runs"][0]["state"] == "failed"
    assert data_of(private)["runs"][0]["reason"] == "Anna-canary did not answer"


def test_a_hostile_name_can_not_end_the_page_s_data(folder: Path) -> None:
    hostile = "</script><script>alert(1)"
    for name in (FILE_NAME, ROUTES):
        path = folder / name
        path.write_text(path.read_text().replace("Anna-canary", hostile))
    _, private = write_reports(folder)
    page = private.read_text()
    assert "<script>alert" not in page
    (run,) = data_of(private)["runs"]
    assert hostile in {row["name"] for row in run["hospitals"]}


def test_without_routes_there_are_states_but_no_chains(folder: Path) -> None:
    (folder / ROUTES).unlink()
    seen = coordinator_view(RunRecord.read(folder))["map"]
    assert seen["window"] is None
    assert seen["rows"][0] == [[0, 1, "t"], [1, 1, "p"], [2, 4, "t"]]
    assert seen["aggregations"] == [2, 5]


def test_the_chains_of_the_map_are_the_routes(folder: Path) -> None:
    window = coordinator_view(RunRecord.read(folder))["map"]["window"]
    assert (window["first"], window["last"]) == (1, 6)
    second = next(chain for chain in window["chains"] if chain["name"] == "2.1")
    assert second["stops"] == [[4, 0], [5, 1], [6, 2]]
    assert second["seen"] == 3


def test_many_legs_share_a_column_which_shows_the_worst_state(folder: Path) -> None:
    run = RunRecord.read(folder)
    history = run.history
    history.legs = history.done = 1000
    one = history.hospitals["Anna-canary"]
    one.states = bytearray(b"t" * 1000)
    one.states[500:501] = b"m"
    seen = coordinator_view(run)["map"]
    assert seen["per_column"] == 3
    assert seen["rows"][0] == [[0, 166, "t"], [166, 1, "m"], [167, 167, "t"]]
