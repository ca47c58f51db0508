"""`feddc coordinator run --dry-run` against what runs really did."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from client_app.enrol.enrolment import initialise
from client_app.hospital_folder import HospitalFolder
from learning.trainer import TaskSpec
from operation.cli import app
from protocol.study.card import Card
from server_app.config.run_config import Settings
from server_app.experiment.dry_run import forecast
from server_app.experiment.policy_forecast import begun_experiments
from server_app.run.simulated_run import run
from server_app.study.creation import create_study
from server_app.study.study_folder import Study
from tests.conftest import TINY, RecordingGrid
from tests.server_app.run_files import events


def feddc(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["coordinator", *map(str, arguments)])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of three hospitals that never ran anything."""
    place = tmp_path_factory.mktemp("dry")
    made = create_study(
        place / "study", name="hearts", address="h:1", listen="", internal_port=28000
    )
    for name in ("a", "b", "c"):
        folder = HospitalFolder(place / name)
        card, file = initialise(folder, name, "hearts")
        done = feddc("enrol", file, "--study", made.folder, "--fingerprint", card.fingerprint)
        assert done.exit_code == 0, done.output
    assert feddc("roster", "--study", made.folder).exit_code == 0
    return made


def dry_run(study: Study, *options: object) -> Result:
    task = ("--set", "input-shape=13", "--set", "classes=2")
    return feddc("run", "--dry-run", "--study", study.folder, *task, *options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"averaging": "secure"},
        {"averaging": "plain", "optimizer": "adam", "learning-rate": 0.01},
        {"averaging": "secure", "daisy-period": 0},
    ],
    ids=["secure", "plain with adam", "no hand-overs"],
)
def test_legs_models_and_bytes_are_those_of_a_run(changes: dict[str, Any], tmp_path: Path) -> None:
    large = {"model": "mlp", "model-options": '{"hidden": [3000]}', "sealed": True}
    config = TINY | large | changes | {"run-dir": str(tmp_path / "run")}
    settings = Settings.from_run_config(config, source="test")
    summary = run(RecordingGrid(settings), settings)
    started = events(tmp_path / "run", "hospital")

    from learning.local_data import load_dataset

    data = load_dataset(settings.local, settings.algorithm.seed)
    found = forecast(settings, TaskSpec(data.shape, len(data.classes)), [])
    hospitals = settings.algorithm.hospitals
    assert (found.legs, found.hand_overs, found.aggregations) == (
        summary["legs"],
        summary["hand_overs"],
        summary["aggregations"],
    )
    assert found.models_sent * hospitals == len(started)
    assert found.readable_by_coordinator * hospitals == summary["readable_models"]
    assert summary["bytes_up"] / hospitals == pytest.approx(found.bytes_sent, rel=0.03)


def test_the_command_needs_neither_a_superlink_nor_a_hospital(study: Study) -> None:
    before = sorted(study.folder.rglob("*"))
    done = dry_run(study)
    assert done.exit_code == 0, done.output
    # 100 rounds, d = 1, b = 5: by hand.
    assert "100, in 100 legs: 80 hand-overs, 20 aggregations" in done.stdout
    assert "no leg of this study has been measured yet" in done.stdout
    assert "a announced on 20" in done.stdout
    assert "would refuse" not in done.stdout
    assert "sums, each of at least" in done.stdout
    assert "privacy        no noise" in done.stdout
    assert sorted(study.folder.rglob("*")) == before


def test_time_comes_from_the_last_legs_of_the_last_experiment_that_had_any(study: Study) -> None:
    for name, seconds in (("e1", 100.0), ("e2", 2.0), ("e3", None)):
        folder = study.experiments / name
        folder.mkdir()
        (folder / "settings.json").write_text("{}")
        if seconds is not None:
            lines = [
                {"event": "leg", "ending": ending, "seconds": seconds * factor}
                for ending, factor in (("hand-over", 1), ("aggregation", 3))
            ]
            (folder / "metrics.jsonl").write_text(
                "\n".join([*map(json.dumps, lines), '{"event": "leg", "seco'])
            )
    try:
        done = dry_run(study, "--json")
        found = json.loads(done.stdout)
        # 80 hand-overs of 2 s and 20 aggregations of 6 s.
        assert found["seconds"] == 80 * 2 + 20 * 6
        assert "last 2 of e2" in found["measured"]
    finally:
        for name in ("e1", "e2", "e3"):
            for file in (study.experiments / name).iterdir():
                file.unlink()
            (study.experiments / name).rmdir()


def test_plain_aggregation_and_bounds_are_said(study: Study) -> None:
    plain = dry_run(study, "--set", "averaging=plain", "--set", "fraction=0.5")
    assert "up to 20 times by the coordinator" in plain.stdout.replace("\n", " ")
    assert "sends up to 100 models" in plain.stdout


def test_epsilon_and_the_smallest_sum_are_those_that_the_experiment_would_have() -> None:
    private = {"privacy-unit": "patient", "nominal-patients": 50, "target-epsilon": 3.0}
    config = TINY | private | {"hospitals": 6, "minimum-cohort": 6, "averaging": "secure"}
    found = forecast(Settings.from_run_config(config, source="test"), TaskSpec((13,), 2), [])
    assert found.epsilon == 3.0
    assert found.least_summands == 6  # two thirds would be 5


def test_what_hospitals_have_announced_is_shown_and_compared(study: Study) -> None:
    done = dry_run(study, "--set", "averaging=plain", "--set", "rounds=200000", "--json")
    found = json.loads(done.stdout)["policies"]
    assert list(found) == ["a", "b", "c"]
    for one in found.values():
        assert one["announced"]["minimum_cohort"] == 3
        assert date.fromisoformat(one["announced"]["since"])
        rounds, averaging = one["would_refuse"]
        assert rounds == "200000 rounds are too many"
        assert averaging.startswith("averaging is plain")
    text = dry_run(study, "--set", "rounds=200000").stdout
    assert text.count("would refuse: 200000 rounds are too many") == 3


def test_a_new_card_changes_what_is_known_and_an_older_one_does_not(study: Study) -> None:
    file = study.members / "b.json"
    before = file.read_bytes()
    place = HospitalFolder(study.folder.parent / "b")
    card = Card.from_json(before)
    assert card.policy is not None
    later = card.policy.model_copy(
        update={"since": date(2100, 1, 1), "max_epsilon": 2.0, "approval": "automatic"}
    )
    try:
        for policy in (later, None, card.policy):
            sent = Card.make("b", place.identity(), card.transport, policy)
            (place.path / "sent.json").write_text(sent.to_json())
            # Nobody is asked: the identity that was compared has signed it.
            done = feddc("enrol", place.path / "sent.json", "--study", study.folder)
            assert done.exit_code == 0, done.output
            assert ("its policy is noted" in done.stdout) == (policy is later)
        found = json.loads(dry_run(study, "--json").stdout)["policies"]
        assert found["b"]["announced"]["since"] == "2100-01-01"
        (reason,) = found["b"]["would_refuse"]
        assert reason.startswith("it would cost a patient more than max-epsilon = 2.0, or has no")
        assert found["a"]["would_refuse"] == found["c"]["would_refuse"] == []
        # With noise enough it is not refused.
        private = ("privacy-unit=patient", "nominal-patients=50", "target-epsilon=2.0")
        options = [word for one in private for word in ("--set", one)]
        found = json.loads(dry_run(study, *options, "--json").stdout)["policies"]
        assert found["b"]["would_refuse"] == []
    finally:
        file.write_bytes(before)


def test_a_member_with_an_older_card_has_announced_no_policy(study: Study) -> None:
    file = study.members / "c.json"
    before = file.read_bytes()
    identity = HospitalFolder(study.folder.parent / "c").identity()
    file.write_text(Card.make("c", identity, Card.from_json(before).transport).to_json())
    try:
        done = dry_run(study)
        assert done.exit_code == 0, done.output
        assert "c has announced no policy" in done.stdout
        found = json.loads(dry_run(study, "--json").stdout)["policies"]["c"]
        assert found == {"announced": None, "would_refuse": []}
    finally:
        file.write_bytes(before)


def test_only_experiments_that_began_under_the_roster_are_counted(tmp_path: Path) -> None:
    folders = []
    for name, roster, event in (
        ("begun", b"present", "start"),
        ("never began", b"present", "approval"),
        ("of the roster before", b"former", "start"),
    ):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "roster").write_bytes(roster)
        (folders[-1] / "metrics.jsonl").write_text(json.dumps({"event": event}) + "\n")
    (tmp_path / "damaged").mkdir()
    assert begun_experiments([*folders, tmp_path / "damaged"], b"present") == 1


def test_wrong_settings_are_refused_as_by_a_real_run(study: Study) -> None:
    done = dry_run(study, "--set", "model=nonsense")
    assert done.exit_code == 2
    assert "model must be one of" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_test_data_are_found_beside_the_settings_or_from_where_the_command_runs(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The experiment runs in another folder: a relative path must not depend on it."""
    table = "age,label\n" + "".join(f"{age},{age % 2}\n" for age in range(40))
    (study.folder / "beside.csv").write_text(table, encoding="utf-8")
    (tmp_path / "here.csv").write_text(table, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    former = study.settings_file.read_bytes()
    study.settings_file.write_text('test-data = "csv"\ntest-data-dir = "beside.csv"\n')
    try:
        options = ("run", "--dry-run", "--json", "--study", study.folder)
        beside = feddc(*options)
        here = feddc(*options, "--set", "test-data-dir=here.csv")
        nowhere = feddc(*options, "--set", "test-data-dir=beside.csv")
    finally:
        study.settings_file.write_bytes(former)
    assert (beside.exit_code, here.exit_code) == (0, 0), beside.output + here.output
    assert nowhere.exit_code == 2
    assert str(tmp_path / "beside.csv") in nowhere.output
