"""The documentation's pages are made from results files, and say where the paper is not met."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.report_command import pages, report
from lab.results.page import findings, page
from lab.results.study_blocks import with_blocks
from lab.sweep import Request, RunFolder
from tests.lab.bench.conftest import tiny
from tests.lab.bench.test_results import finished

DOCS = Path(__file__).parents[3] / "docs"


def some_results(**accuracies: tuple[float, float]) -> dict[str, Any]:
    from lab.results.result import results

    found: dict[str, Any] = json.loads(json.dumps(results(*finished(**accuracies), 12.0)))
    return found


@pytest.mark.parametrize(
    ("feddc", "said"),
    [
        ((0.90, 0.91), "ahead; the paper reports +2.5."),
        ((0.885, 0.886), "ahead, **but by less than half of the +2.5 that the paper reports.**"),
        ((0.87, 0.89), "**no difference; the paper reports +2.5: not reproduced.**"),
        ((0.80, 0.81), "**behind; the paper reports +2.5: not reproduced.**"),
    ],
)
def test_the_page_says_plainly_what_is_not_reproduced(
    feddc: tuple[float, float], said: str
) -> None:
    results = some_results(feddc=feddc, fedavg_1=(0.88, 0.88))
    (finding,) = findings(results)
    assert finding.endswith(said)
    assert finding in page([results])


def test_every_row_has_its_setting_seeds_machine_seconds_and_the_papers_number() -> None:
    results = some_results(feddc=(0.90, 0.80), fedavg_1=(0.88, 0.88))
    text = page([results])
    assert "`feddc lab run tiny --setting laptop --seeds 2`: seeds 0 to 1, 12 s on " in text
    assert results["hardware"]["torch"] in text
    assert "| FedDC(1, 3) | 85.0 ± 5.0 | 50.0 ± 0.0 | 90.5 ± 0.5 | 0.1 | 2 | 24 | 1.0 |" in text


def test_a_run_is_taken_over_with_its_plot(tmp_path: Path) -> None:
    folder = RunFolder.for_request(Request(tiny(), "laptop"), tmp_path / "run")
    folder.write("results.json", some_results(feddc=(0.9, 0.9), fedavg_1=(0.8, 0.8)))
    (folder.path / "communication.png").write_bytes(b"picture")
    docs = tmp_path / "docs"
    assert report([folder.path], docs) == 0
    assert (docs / "results" / "tiny-communication.png").read_bytes() == b"picture"
    assert (docs / "results.md").read_text() == pages(docs)["results.md"]


def test_an_unfinished_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.for_request(Request(tiny(), "laptop"), tmp_path / "run")
    assert report([folder.path], tmp_path / "docs") == 2
    assert "is not finished" in capsys.readouterr().err


def test_blocks_of_studies_are_made_anew_and_the_rest_of_the_page_is_left_alone() -> None:
    results = some_results(feddc=(0.90, 0.91), fedavg_1=(0.88, 0.88), fedavg_b=(0.8, 0.8))
    other = "b\n<!-- study: other -->\nx\n<!-- end -->\n"
    before = f"a\n<!-- study: tiny -->\nold\n<!-- end -->\n{other}"
    after = with_blocks(before, {"tiny": results})
    assert after.startswith("a\n<!-- study: tiny -->\n|")
    assert after.endswith(f"<!-- end -->\n{other}")
    assert "| 88.0 ± 0.0 | 80.0 ± 0.0 | diverged | +10.5, ahead | +2.5, ahead |" in after
    assert with_blocks(after, {"tiny": results}) == after


def test_the_pages_are_what_the_committed_results_make_of_them() -> None:
    for name, text in pages(DOCS).items():
        assert (DOCS / name).read_text("utf-8") == text, f"run `feddc lab report` for docs/{name}"
