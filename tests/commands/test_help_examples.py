"""Every example of a help runs as it stands, in a folder where it makes sense.

What needs running services, Flower's engine or minutes is in the slow tests below; the first test
makes sure that no command is left out.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

from lab.flower.in_process import simulate_in_process
from operation.cli import app
from server_app.config.run_config import Settings
from tests.commands.in_terminal import progress_of
from tests.commands.walk import COMMANDS, example, words
from tests.conftest import TINY
from tests.federation.federation import FEDDC, ROOT, environment, needs_nginx, wait_for
from tests.federation.screens import HOSPITALS, TASK, Screens, put_data, screens_of

SOURCE = load_breast_cancer()
OFFLINE_STUDY = [
    "coordinator init",
    "hospital init",
    "coordinator enrol",
    "coordinator roster",
    "hospital join",
    "hospital check",
    "hospital status",
    "hospital experiments",
    "hospital audit",
    "hospital ledger",
    "hospital evaluate",
    "hospital card",
    "hospital renew-transport-key",
    "hospital reset",
    "coordinator codebook",
    "coordinator renew-certificate",
    "coordinator remove",
]
RUNNING_STUDY = [
    "coordinator up",
    "hospital serve",
    "hospital connect",
    "coordinator run",
    "hospital approve",
    "coordinator stop",
    "coordinator resume",
    "coordinator follow",
    "coordinator status",
    "coordinator export",
    "hospital predict",
    "hospital reject",
    "coordinator down",
]
AT_ONCE = ["docs", "lab list", "lab bound", "lab advise", "lab data", "sealing key"]
ON_RUNS = ["lab compare", "lab page", "lab export"]
MINUTES = ["simulate", "lab run", "lab demo", "lab attack"]
PROGRESS = {  # what a terminal shows of each meanwhile
    "simulate": "loading PyTorch and Flower",
    "lab run": "checking data and networks",
    "lab demo": "training on the lab's engine",
    "lab attack": "with noise: reconstructing records",
}
PAGES = ["lab dashboard", "coordinator dashboard"]
OTHERS = ["sealing roster", "lab report"]

# Predictions need a study that has agreed on its columns.
CODEBOOK = 'classes = ["benign", "malignant"]\nlabel = "label"\n' + "".join(
    f'[[columns]]\nkind = "number"\nname = "{name.replace(" ", "-")}"\nunit = "1"\n'
    f"range = [0, {mean + 100 * scale}]\ncentre = {mean}\nscale = {scale}\n"
    for name, mean, scale in zip(
        SOURCE.feature_names, SOURCE.data.mean(0), SOURCE.data.std(0), strict=True
    )
)


def test_every_command_is_in_one_of_the_lists() -> None:
    listed = [OFFLINE_STUDY, RUNNING_STUDY, AT_ONCE, ON_RUNS, MINUTES, PAGES, OTHERS]
    assert sorted(name for names in listed for name in names) == sorted(COMMANDS)


def run(name: str, *more: str, replaced: dict[str, str] | None = None) -> str:
    """Run an example in this process and the present folder; say yes to all questions."""
    given = [*words(name), *more]
    for shown, ours in (replaced or {}).items():
        given = [word.replace(shown, ours) for word in given]
    done = CliRunner().invoke(app, given, input="y\ny\n", catch_exceptions=False)
    assert done.exit_code == 0, f"{example(name)}: {done.output}"
    return done.output


@pytest.mark.parametrize("name", AT_ONCE)
def test_examples_that_need_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDDC_DATA", raising=False)  # `lab data` would read every file there
    assert run(name).strip()


def test_examples_of_the_sealing_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("St Mary", "Charite"):
        run("sealing key", replaced={"St Mary": name})
    assert "Charite, St Mary" in run("sealing roster")


def test_examples_on_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("one", "two")):
        config = TINY | {"rounds": 4, "seed": seed}
        settings = Settings.from_run_config(config, source="test")
        simulate_in_process(settings, tmp_path / "runs" / name)

    shown = run("lab compare")
    assert "runs/one" in shown
    assert "runs/two" in shown
    run("lab page")
    assert "<html" in (tmp_path / "both.html").read_text(encoding="utf-8")
    run("lab export")
    assert list((tmp_path / "runs" / "one" / "tensorboard").glob("events.*"))


def test_examples_of_a_study_without_services(monkeypatch: pytest.MonkeyPatch) -> None:
    with screens_of({}) as screens:
        coordinator, st_mary = screens.place("coordinator"), screens.place("St Mary")
        monkeypatch.chdir(coordinator)
        run("coordinator init")
        (coordinator / "study" / "settings.toml").write_text(TASK, encoding="utf-8")
        for number, name in enumerate(HOSPITALS):
            monkeypatch.chdir(screens.place(name))
            run("hospital init", replaced={"St Mary": name})
            put_data(screens.place(name) / "hospital" / "data", number)
            shutil.copy(screens.place(name) / "hospital" / f"{name}.hospital.json", coordinator)
            monkeypatch.chdir(coordinator)
            run("coordinator enrol", replaced={"St Mary": name})
        run("coordinator roster")
        shutil.copytree(coordinator / "study" / "for-hospitals", st_mary / "for-hospitals")

        monkeypatch.chdir(st_mary)
        run("hospital join")
        assert "examples to train on" in run("hospital check")
        for name in ("status", "experiments", "audit", "ledger", "evaluate"):
            assert run(f"hospital {name}").strip()
        assert "Announced since" in run("hospital card")
        assert "has not changed" in run("hospital renew-transport-key")
        assert "were removed" in run("hospital reset")

        monkeypatch.chdir(coordinator)
        rows = "age,sex,diagnosis\n61,male,sick\n47,female,healthy\n70,male,sick\n"
        (coordinator / "sample.csv").write_text(rows, encoding="utf-8")
        run("coordinator codebook")
        assert "diagnosis" in (coordinator / "study" / "codebook.toml").read_text(encoding="utf-8")
        assert "is valid for" in run("coordinator renew-certificate")
        assert "no longer a member" in run("coordinator remove")


@pytest.mark.slow
@pytest.mark.parametrize("name", MINUTES)
def test_examples_that_train(name: str, tmp_path: Path) -> None:
    assert PROGRESS[name] in progress_of([*FEDDC, *words(name)], tmp_path)


@pytest.mark.slow
def test_the_example_that_remakes_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    (tmp_path / "docs" / "results.md").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run("lab report")
    made = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert made == (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def assert_serves_a_page(name: str, folder: Path) -> None:
    """Start a dashboard, open its address, and stop it.

    By SIGTERM: where the tests are a shell's background job, SIGINT is ignored.
    """
    import httpx

    with subprocess.Popen(
        [*FEDDC, *words(name)], cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[1]
            assert httpx.get(address, follow_redirects=True).status_code == 200
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_the_example_of_the_labs_dashboard(tmp_path: Path) -> None:
    assert_serves_a_page("lab dashboard", tmp_path)


@needs_nginx
@pytest.mark.slow
@pytest.mark.timing
def test_examples_of_a_running_study() -> None:
    with screens_of({name: words(name) for name in OFFLINE_STUDY + RUNNING_STUDY}) as screens:
        _enrol_and_start(screens)
        coordinator = screens.place("coordinator")
        first = screens.start("coordinator run", "coordinator")
        experiment = _asked(screens, "St Mary")
        for name in HOSPITALS:
            _asked(screens, name)
            screens.run("hospital approve", name, experiment=experiment)
        assert first.wait(1000) == 0, (coordinator / "background.log").read_text()
        assert "20 = 18 hand-overs + 2 aggregations" in screens.run(
            "coordinator follow", "coordinator"
        )
        assert f'"{experiment}"' in screens.run("coordinator status", "coordinator")
        assert_serves_a_page("coordinator dashboard", coordinator)
        screens.run("coordinator export", "coordinator")
        assert list((coordinator / "for-others").glob("*.onnx"))
        data = screens.place("St Mary") / "hospital" / "data" / "patients.csv"
        shutil.copy(data, screens.place("St Mary") / "new-patients.csv")
        shown = screens.run("hospital predict", "St Mary", experiment=experiment)
        assert len(shown.splitlines()) == 31  # a header, and a line for each patient

        second = screens.start("coordinator run", "coordinator")
        other = _asked(screens, "St Mary", besides=experiment)
        assert "is rejected" in screens.run("hospital reject", "St Mary", experiment=other)
        second.wait(300)  # it can't begin without St Mary
        assert f"{other} is running" in screens.run("coordinator resume", "coordinator")
        screens.run("coordinator stop", "coordinator")
        assert "is down" in screens.run("coordinator down", "coordinator")


def _enrol_and_start(screens: Screens) -> None:
    coordinator = screens.place("coordinator")
    screens.enrol_all("".join(f"{line}\n" for line in TASK.splitlines() if "period" in line))
    (coordinator / "study" / "codebook.toml").write_text(CODEBOOK, encoding="utf-8")
    screens.run("coordinator roster", "coordinator")
    for name in HOSPITALS:
        shutil.copytree(
            coordinator / "study" / "for-hospitals", screens.place(name) / "for-hospitals"
        )
        screens.run("hospital join", name)
        screens.start("hospital serve", name)
    screens.run("coordinator up", "coordinator")
    for name in HOSPITALS:
        screens.start("hospital connect", name)


def _asked(screens: Screens, hospital: str, besides: str = "") -> str:
    """Wait until an experiment waits for a hospital's approval; return its id."""

    def look() -> str | None:
        found = screens.waiting(hospital)
        return found if found != besides else None

    return str(wait_for(look, f"a request to {hospital}"))
