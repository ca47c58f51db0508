"""The report of a comparison: the figures of its results.json, on a page of one file."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.commands.page_command import write_page
from lab.results.plots.report_page import report_page
from lab.results.result import results
from lab.results.table import gain_lines
from lab.sweep import RunFolder
from server_app.pages.report import PUBLIC
from tests.lab.results.test_results import finished
from tests.server_app.pages.chromium import needs_chromium, opened
from tests.server_app.pages.test_reports import data_of

DOCS = Path(__file__).parents[3] / "docs" / "results"


@pytest.fixture
def comparison() -> dict[str, Any]:
    ours, records = finished(
        feddc=(0.90, 0.80), fedavg_1=(0.2, 0.1), fedavg_b=(0.7, 0.7), central=(0.9, 0.9)
    )
    return results(ours, records, 1.0)


def shown(comparison: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the data that the page of a comparison shows."""
    page = folder / PUBLIC
    page.write_text(report_page(comparison), encoding="utf-8")
    return data_of(page)


def test_a_page_has_every_method_with_its_accuracy_curve_and_differences(
    comparison: dict[str, Any], tmp_path: Path
) -> None:
    data = shown(comparison, tmp_path)
    assert "laptop preset, 2 seeds" in data["title"]
    feddc = data["runs"][0]
    assert dict(feddc["row"])["test accuracy, %"] == "85.0 ± 5.0"
    assert dict(feddc["facts"])["each seed, %"] == "90.0, 80.0"
    assert "paper, %" in dict(feddc["row"])
    for row in comparison["rows"]:
        row["paper"] = None  # as of one's own data
    assert "paper, %" not in dict(shown(comparison, tmp_path)["runs"][0]["row"])
    mean, *seeds = feddc["charts"][0]["series"]
    assert (mean["x"], mean["y"]) == ([3, 6], [42.5, 85.0])
    assert [seed["y"] for seed in seeds] == [[45.0, 90.0], [40.0, 80.0]]
    assert feddc["findings"] == gain_lines(comparison)
    assert [run["method"] for run in data["runs"]] == [row["label"] for row in comparison["rows"]]


def test_of_several_variants_the_first_is_shown_at_first(tmp_path: Path) -> None:
    stored = json.loads((DOCS / "mri-desk.json").read_text(encoding="utf-8"))
    runs = shown(stored, tmp_path)["runs"]
    first = stored["rows"][0]["variant"]
    assert {run["chosen"] for run in runs} == {True, False}
    assert all(run["chosen"] == (first in run["name"]) for run in runs)
    assert len({run["name"] for run in runs}) == len(runs)


def test_lab_page_writes_the_report_of_a_comparison_again(
    comparison: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path)
    folder.write("results.json", comparison)
    assert write_page([tmp_path], None) == 2, "the folder has no request: not one of `lab run`"
    folder.write("sweep.json", {})
    assert write_page([tmp_path], None) == 0
    assert (tmp_path / PUBLIC).read_text(encoding="utf-8") == report_page(comparison)
    assert f"wrote {tmp_path / PUBLIC}" in capsys.readouterr().out


def test_lab_page_says_what_is_wrong_with_a_damaged_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path)
    folder.write("sweep.json", {})
    folder.write("results.json", {"format": "feddc-results-3"})
    assert write_page([tmp_path], None) == 2
    assert "results.json" in capsys.readouterr().err


@pytest.mark.slow
@needs_chromium
def test_a_comparison_opens_offline_with_its_table_and_curves(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    from benchmarks.support.chromium import CHROMIUM, FLAGS

    stored = json.loads((DOCS / "mri-desk.json").read_text(encoding="utf-8"))
    path = tmp_path / PUBLIC
    path.write_text(report_page(stored), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        tab, asked, errors = opened(browser, path.as_uri(), offline=True)
        tab.wait_for_selector("section.chart canvas")
        assert (asked, errors) == ([path.as_uri()], [])
        assert "Differences" in tab.locator("main").inner_text()
        assert tab.locator("section table").first.locator("tbody tr").count() == sum(
            row["variant"] == stored["rows"][0]["variant"] for row in stored["rows"]
        )
        tab.get_by_role("button", name="only").nth(1).click()
        assert "each seed, %" in tab.locator("main").inner_text()
        assert errors == []
        browser.close()
