"""The documentation's pages are made from results files, and say where the paper is not met."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lab.commands.report_command import (
    README_CURVES,
    README_PLOT,
    older_streams,
    pages,
    report,
)
from lab.experiments import ExperimentError
from lab.results.ablation_blocks import with_blocks
from lab.results.findings import counts, findings
from lab.results.page import page
from lab.results.plots.curves import curves
from lab.results.plots.readme_plot import EXPERIMENT as README_EXPERIMENT
from lab.results.plots.readme_plot import METHODS, digest
from lab.results.result import results
from lab.results.table import gain_lines
from lab.sweep import Request, RunFolder
from tests.lab.conftest import tiny
from tests.lab.results.test_results import finished

DOCS = Path(__file__).parents[3] / "docs"


def some_results(**accuracies: tuple[float, ...]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(results(*finished(**accuracies), 12.0)))
    return found


@pytest.mark.parametrize(
    ("feddc", "said"),
    [
        # Against FedAvg(1) at 88; the paper reports +2.5.
        ((0.90, 0.91, 0.90), "ahead; the paper reports +2.5."),
        ((0.91, 0.92, 0.93), "ahead; the paper reports +2.5, less than that."),
        ((0.895, 0.90, 0.90), "ahead; the paper reports +2.5, more than that."),
        (
            (0.885, 0.886, 0.887),
            "ahead, **but by less than half of the +2.5 that the paper reports.**",
        ),
        # On average less than half, but one seed has more.
        ((0.881, 0.881, 0.894), "ahead; the paper reports +2.5, more than that."),
        ((0.87, 0.89, 0.89), "**undecided; the paper reports +2.5: not reproduced.**"),
        (
            (0.87, 0.89, 0.91),
            "undecided; the paper reports +2.5: these data neither confirm nor refute it.",
        ),
        ((0.80, 0.81, 0.80), "**behind; the paper reports +2.5: not reproduced.**"),
        ((0.80, 0.81), "two seeds: no verdict; the paper reports +2.5."),
        # Five seeds: the interval of their mean decides, here -1.1 … +2.3, and not the best seed.
        (
            (0.88, 0.88, 0.88, 0.88, 0.91),
            "**undecided; the paper reports +2.5: not reproduced.**",
        ),
        (
            (0.88, 0.88, 0.88, 0.88, 0.92),
            "undecided; the paper reports +2.5: these data neither confirm nor refute it.",
        ),
        (
            (0.87, 0.89, 0.875, 0.885, 0.88),
            "**undecided; the paper reports +2.5: not reproduced.**",
        ),
    ],
)
def test_the_page_says_plainly_what_is_not_reproduced_and_no_more(
    feddc: tuple[float, ...], said: str
) -> None:
    results = some_results(feddc=feddc, fedavg_1=(0.88,) * len(feddc)) | {"preset": "desk"}
    (finding,) = findings(results)
    assert finding.endswith(said)
    assert finding in page([results])


def test_a_demonstration_is_neither_reproduced_nor_not() -> None:
    results = some_results(feddc=(0.80, 0.81, 0.80), fedavg_1=(0.88,) * 3)
    (finding,) = findings(results)
    assert finding.endswith("behind; the paper reports +2.5 in its own regime.")
    text = page([results])
    assert "reproduced.**" not in text
    assert "## In short: demonstrations (laptop preset)" in text


def test_a_lead_that_turns_late_in_training_has_no_verdict() -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.88,) * 3) | {"preset": "desk"}
    results["gains"][0]["stable"] = False
    (finding,) = findings(results)
    assert "ahead at the end, but not stable" in finding
    assert finding.endswith("no verdict, it depends on the rounds.")


def test_a_lead_that_turns_late_counts_for_nothing_also_in_the_terminal() -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.88,) * 3)
    assert "Against FedAvg(1), of 1 comparisons: ahead in 1" in "".join(counts([results]))
    results["gains"][0]["stable"] = False
    said = "Against FedAvg(1), of 1 comparisons: ahead in 0, undecided in 1"
    assert said in "".join(counts([results]))
    assert "ahead at the end, but not stable" in gain_lines(results)[0]


def test_each_comparison_has_both_accuracies_in_the_papers_units() -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.88,) * 3)
    papers = {"feddc": (90, 0.5), "fedavg-1": (87.5, None)}
    for row in results["rows"]:
        if row["method"] in papers:
            row["paper"], row["paper_deviation"] = papers[row["method"]]
    (finding,) = findings(results)
    assert ", 90.3 ± 0.7 against 88.0 ± 0.0 (in the paper 90 ± 0.5 against 87.5): " in finding


def test_results_of_older_random_streams_are_named() -> None:
    now = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.88,) * 3)
    before = {name: value for name, value in now.items() if name != "streams"}
    assert older_streams([now]) == []
    assert older_streams([now, before]) == [now["experiment"]]


def test_the_column_of_epsilon_says_its_delta() -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.88,) * 3)
    assert "ε at δ" not in page([results])
    results["rows"][0] |= {"epsilon": 2.0, "delta": 1e-6}
    assert "| ε at δ = 1e-06 |" in page([results])


def test_a_verdict_by_balanced_accuracy_says_so() -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_b=(0.88, 0.88, 0.88))
    (gain,) = results["gains"]
    balanced = gain["gain"] | {"mean": -12.0}
    gain |= {"by_balanced": True, "verdict": "behind", "balanced_gain": balanced}
    assert next(findings(results)).endswith(
        ": behind, by balanced accuracy; the paper has no figure for it."
    )
    assert "| -12.0 (behind, by balanced accuracy), – |" in page([results])


def test_a_lead_with_a_learning_rate_at_an_edge_says_so() -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.88, 0.88, 0.88))
    for row, chosen in zip(results["rows"], (0.1, 0.4, 0.1, 0.1), strict=True):
        row |= {"candidates": {"0.1": 80.0, "0.2": 70.0, "0.4": 75.0}, "learning_rates": [chosen]}
    (finding,) = findings(results)
    told = "Learning rates at an edge of the grid: FedDC(1, 3) ↓, FedAvg(1) ↑."
    assert finding.endswith(told)
    for row in results["rows"]:
        del row["candidates"]["0.2"]
    assert not next(findings(results)).endswith(told)  # of two rates each is an edge
    assert "| 0.4 ↑ |" in page([results])


def test_an_ablation_marks_edges_in_its_table_and_counts_the_leads_with_one() -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.88,) * 3, fedavg_b=(0.95,) * 3)
    for row, chosen in zip(results["rows"], (0.1, 0.4, 0.1, 0.1), strict=True):
        row |= {"candidates": {"0.1": 80.0, "0.2": 70.0, "0.4": 75.0}, "learning_rates": [chosen]}
    block = with_blocks("<!-- ablation: tiny -->\n<!-- end -->", {"tiny": results})
    assert "| 90.3 ± 0.7 ↓ | 88.0 ± 0.0 ↑ |" in block
    assert "In 1 of FedDC's 1 leads, one of the two learning rates is at an edge" in block


def test_the_page_has_each_variants_own_settings() -> None:
    results = some_results(feddc=(0.90, 0.80), fedavg_1=(0.88, 0.88))
    results["settings"] = {"hospitals": 30, "rounds": 200, "examples": 8}
    results["variants"] = {"few": {"examples": 7, "rounds": 20}, "many": {"rounds": 500}}
    text = page([results])
    # No variant has the shared number of rounds, so that it would only mislead.
    assert "Settings: `examples = 8`, `hospitals = 30`." in text
    assert "in *few* `examples = 7`, `rounds = 20`; in *many* `rounds = 500`." in text


def test_a_page_says_why_intervals_of_resplit_data_are_wider() -> None:
    results = some_results(feddc=(0.90, 0.80), fedavg_1=(0.88, 0.88))
    assert "corrected resampled t-test" not in page([results])
    for row in results["rows"]:
        row["overlap"] = 0.25
    assert "with 1/2 + 114/455 instead of 1/2 in the variance of the mean" in page([results])


def test_every_row_has_its_preset_seeds_machine_seconds_and_the_papers_number() -> None:
    results = some_results(feddc=(0.90, 0.80), fedavg_1=(0.88, 0.88))
    text = page([results])
    assert "`feddc lab run tiny --preset laptop --seeds 2`: seeds 0 to 1, 12 s on " in text
    assert results["hardware"]["torch"] in text
    assert "| FedDC(1, 3) | 85.0 ± 5.0 | 50.0 ± 0.0 | – | 90.5 ± 0.5 | 0.1 | 2 | 24 | 1.0 |" in text


def test_a_run_is_taken_over_with_its_plot(tmp_path: Path) -> None:
    folder = RunFolder.for_request(Request(tiny(), "laptop"), tmp_path / "run")
    folder.write("results.json", some_results(feddc=(0.9, 0.9), fedavg_1=(0.8, 0.8)))
    (folder.path / "communication.png").write_bytes(b"picture")
    docs = tmp_path / "docs"
    assert report([folder.path], docs) == 0
    assert (docs / "results" / "tiny-communication.png").read_bytes() == b"picture"
    assert (docs / "results.md").read_text() == pages(docs)["results.md"]


def with_curves(run: Path, *methods: str) -> Path:
    """Return a finished run of the README's experiment, with the curves of these methods."""
    experiment = tiny().model_copy(update={"name": README_EXPERIMENT})
    folder = RunFolder.for_request(Request(experiment, "laptop"), run)
    ours, records = finished(feddc=(0.9, 0.8), fedavg_1=(0.8, 0.8), fedavg_b=(0.7, 0.6))
    made = json.loads(json.dumps(results(ours, records, 1.0))) | {"experiment": experiment.name}
    folder.write("results.json", made)
    drawn = [curve for curve in curves(ours, records) if curve["method"] in methods]
    folder.write("curves.json", {"curves": drawn})
    return folder.path


def test_the_readmes_plot_is_drawn_with_the_run_it_shows(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    assert report([with_curves(tmp_path / "run", *METHODS, "central")], docs) == 0
    kept = json.loads((docs / "results" / README_CURVES).read_text())["curves"]
    assert [curve["method"] for curve in kept] == [*METHODS]
    drawn_from = Image.open(docs / "results" / README_PLOT).text["Source"]
    made = json.loads((docs / "results" / f"{README_EXPERIMENT}.json").read_text())
    assert drawn_from == digest(made, kept)
    kept[0]["test"][-1][-1] += 0.1
    assert drawn_from != digest(made, kept)


def test_a_run_without_a_method_of_the_readmes_plot_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "docs"
    assert report([with_curves(tmp_path / "run", "feddc", "fedavg-1")], docs) == 2
    assert "needs the methods fedavg-b too" in capsys.readouterr().err
    assert not docs.exists()


def test_an_unfinished_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.for_request(Request(tiny(), "laptop"), tmp_path / "run")
    assert report([folder.path], tmp_path / "docs") == 2
    assert "is not finished" in capsys.readouterr().err


def test_results_of_an_older_version_are_refused_with_what_to_do() -> None:
    old = some_results(feddc=(0.9, 0.9), fedavg_1=(0.8, 0.8)) | {"format": "feddc-results-1"}
    with pytest.raises(ExperimentError, match="run `feddc lab run tiny` again"):
        page([old])


def test_blocks_of_studies_are_made_anew_and_the_rest_of_the_page_is_left_alone() -> None:
    results = some_results(feddc=(0.9, 0.91, 0.92), fedavg_1=(0.88,) * 3, fedavg_b=(0.8,) * 3)
    other = "b\n<!-- ablation: other -->\nx\n<!-- end -->\n"
    before = f"a\n<!-- ablation: tiny -->\nold\n<!-- end -->\n{other}"
    after = with_blocks(before, {"tiny": results})
    assert after.startswith("a\n<!-- ablation: tiny -->\n|")
    assert after.endswith(f"<!-- end -->\n{other}")
    assert "| 88.0 ± 0.0 | 80.0 ± 0.0 | diverged | +11.0, ahead | +3.0, ahead |" in after
    assert with_blocks(after, {"tiny": results}) == after


def test_verdicts_are_counted_from_the_studies_a_page_shows_each_comparison_once() -> None:
    one = some_results(feddc=(0.9, 0.91, 0.92), fedavg_1=(0.88,) * 3, fedavg_b=(0.9,) * 3)
    two = some_results(feddc=(0.8, 0.81, 0.82), fedavg_1=(0.88,) * 3, fedavg_b=(0.9,) * 3)
    blocks = "".join(
        f"<!-- ablation: {name} -->\n<!-- end -->\n" for name in ("one", "again", "two")
    )
    page = f"<!-- counts -->\nold\n<!-- end -->\n{blocks}"
    after = with_blocks(page, {"one": one, "again": one, "two": two, "elsewhere": two})
    assert after.startswith(
        "<!-- counts -->\n"
        "- Against FedAvg(b), of 2 comparisons: ahead in 0, undecided in 1, behind in 1.\n"
        "- Against FedAvg(1), of 2 comparisons: ahead in 1, undecided in 0, behind in 1.\n"
        "<!-- end -->"
    )


def test_the_pages_are_what_the_committed_results_make_of_them() -> None:
    for name, text in pages(DOCS).items():
        assert (DOCS / name).read_text("utf-8") == text, f"run `feddc lab report` for docs/{name}"


def test_the_readmes_plot_is_drawn_from_the_committed_results() -> None:
    made = json.loads((DOCS / "results" / f"{README_EXPERIMENT}.json").read_text("utf-8"))
    kept = json.loads((DOCS / "results" / README_CURVES).read_text("utf-8"))["curves"]
    drawn_from = Image.open(DOCS / "results" / README_PLOT).text["Source"]
    assert drawn_from == digest(made, kept), "run `feddc lab report`"
    # The curves are of the same run as the table: they end where it does.
    rows = {row["method"]: row for row in made["rows"]}
    for curve in kept:
        values = rows[curve["method"]]["aggregate"]["values"]
        mean, low, high = curve["test"][-1][-3:]
        assert (low, high) == (min(values), max(values)), curve["method"]
        assert mean == pytest.approx(sum(values) / len(values), abs=0.001)


def test_the_readmes_counts_are_those_of_the_ablations() -> None:
    text = " ".join((DOCS.parent / "README.md").read_text("utf-8").split())
    counts = (DOCS / "when-it-helps.md").read_text("utf-8")
    for baseline, sentence in (
        ("b", "ahead of FedAvg(b) in {1} of {0} comparisons and behind in {2}"),
        ("1", "against FedAvg(1) it was ahead in {1} of {0} and behind in {2}"),
    ):
        line = rf"Against FedAvg\({baseline}\), of (\d+) comparisons: ahead in (\d+), .* in (\d+)\."
        found = re.search(line, counts)
        assert found is not None
        assert sentence.format(*found.groups()) in text


def test_the_readmes_medical_images_are_undecided_but_for_one_as_it_says() -> None:
    made = [json.loads(path.read_text("utf-8")) for path in (DOCS / "results").glob("*.json")]
    medical = [one for one in made if one["settings"]["dataset"] in ("brain-mri", "chest-xray")]
    gains = [gain for one in medical for gain in one["gains"] if gain["over"] == "fedavg-b"]
    decided = [gain for gain in gains if gain["verdict"] != "undecided"]
    assert [gain["variant"] for gain in decided] == ["near-duplicates kept together"]
    assert decided[0]["verdict"] == "ahead"
    points = decided[0]["balanced_gain"]["mean"]
    text = " ".join((DOCS.parent / "README.md").read_text("utf-8").split())
    assert f"three seeds: ahead by {points:.1f} points of balanced accuracy)" in text


def test_the_readmes_figures_are_those_of_the_plot() -> None:
    made = json.loads((DOCS / "results" / f"{README_EXPERIMENT}.json").read_text("utf-8"))
    text = " ".join((DOCS.parent / "README.md").read_text("utf-8").split())
    gains = {gain["over"]: gain["gain"]["mean"] for gain in made["gains"]}
    assert f"{gains['fedavg-b']:.1f} points above FedAvg with as many averages" in text
    assert f"{gains['fedavg-1']:.1f} points above FedAvg with an average in every round" in text
    assert f"With {made['settings']['examples']} images per hospital" in text
    rows = {row["method"]: row["aggregate"]["values"] for row in made["rows"]}
    assert "The order was the same in all three seeds" in text
    seeds = [*zip(rows["feddc"], rows["fedavg-1"], rows["fedavg-b"], strict=True)]
    assert len(seeds) == 3
    assert all(feddc > every_round > rarely for feddc, every_round, rarely in seeds)
