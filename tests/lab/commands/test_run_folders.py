"""Commands on run folders of `simulate`: page, export, compare."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.cli import app
from lab.notebook.run_result import RunResult

Feddc = Callable[..., str]


@pytest.fixture
def lab() -> Feddc:
    def run(*words: object, code: int = 0) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == code, done.output
        return done.output

    return run


@pytest.fixture
def folder(run_tiny: Any) -> Path:
    run = run_tiny(rounds=4, aggregation_period=2)
    return Path(run.settings.algorithm.run_dir)


def test_a_csv_has_pooled_figures_and_single_hospitals_only_on_demand(
    lab: Feddc, folder: Path
) -> None:
    lab("export", folder, "--to", "csv")
    with (folder / "metrics.csv").open(newline="") as file:
        pooled = list(csv.DictReader(file))
    assert pooled
    assert {row["hospital"] for row in pooled} == {""}
    assert "hospital-0" not in (folder / "metrics.csv").read_text()

    lab("export", folder, "--output", folder / "all.csv", "--hospitals")
    with (folder / "all.csv").open(newline="") as file:
        everything = [
            (row["leg"], row["metric"], float(row["value"])) for row in csv.DictReader(file)
        ]
    rows = RunResult(folder).rows()
    assert everything == [(str(row["leg"]), row["metric"], row["value"]) for row in rows]


def test_runs_of_simulate_are_compared(lab: Feddc, folder: Path) -> None:
    shown = lab("compare", folder, folder)
    assert "FedDC(1, 2) around fedavg" in shown
    found = json.loads(lab("compare", folder, "--json"))
    assert found[str(folder)]["legs"] == 4


def test_pages_are_written_again_or_together(lab: Feddc, folder: Path, tmp_path: Path) -> None:
    (folder / "report.html").unlink()
    assert "report-coordinator.html" in lab("page", folder)
    assert (folder / "report.html").is_file()
    both = tmp_path / "both.html"
    lab("page", folder, folder, "--output", both)
    assert both.read_text().count('"audience":"public"') == 2


@pytest.mark.parametrize("command", ["page", "export"])
def test_another_folder_is_refused(lab: Feddc, tmp_path: Path, command: str) -> None:
    assert "is not a run folder" in lab(command, tmp_path, code=2)
