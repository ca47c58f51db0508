"""`feddc lab report`: generate the documentation's result pages from finished runs."""

import json
import shutil
from pathlib import Path

import typer

from lab.experiments import ExperimentError, ablation_names
from lab.results.ablation_blocks import with_blocks
from lab.results.origin import Results
from lab.results.page import page, stem
from lab.results.plots.bound_plot import PAPER as PAPERS_BOUND
from lab.results.plots.bound_plot import draw_bounds
from lab.results.plots.forest_plot import draw_forest
from lab.results.plots.readme_plot import EXPERIMENT as README_EXPERIMENT
from lab.results.plots.readme_plot import draw_readme_plot, readme_curves
from lab.sweep import RunFolder
from operation.terminal import activity
from protocol.randomness import STREAMS_VERSION

RESULTS_PAGE, ABLATIONS_PAGE = "results.md", "when-it-helps.md"
# The README's plot, and what it is drawn from beside the experiment's results.
README_PLOT, README_CURVES = "readme.png", "curves/readme.json"


def report(runs: list[Path], docs: Path) -> int:
    """Copy the results of runs into `docs/results`, then regenerate both pages and the plot."""
    try:
        with activity("writing pages and plots"):
            for run in runs:
                _copy_results(RunFolder.open(run), docs / "results")
            written = [*write_pages(docs), *write_readme_plot(docs / "results")]
            written += [*write_forests(docs), *draw_bounds(PAPERS_BOUND, docs / "results")]
    except ExperimentError as error:
        typer.echo(f"feddc: {error}", err=True)
        return 2
    for path in written:
        typer.echo(f"wrote {path}")
    if old := older_streams(_results(docs)):
        typer.echo(
            f"feddc: made with older random streams (now version {STREAMS_VERSION}): "
            f"{', '.join(old)}. The pages mark them; run them again to replace them.",
            err=True,
        )
    return 0


def older_streams(found: list[Results]) -> list[str]:
    """Return the results whose mini-batches were drawn by an older rule."""
    return [stem(each) for each in found if each.get("streams", 1) != STREAMS_VERSION]


def write_pages(docs: Path) -> list[Path]:
    """Write the pages from the files in `docs/results`."""
    written = []
    for name, text in pages(docs).items():
        (docs / name).write_text(text, "utf-8")
        written.append(docs / name)
    return written


def write_readme_plot(place: Path) -> list[Path]:
    """Draw the README's plot from the files in `docs/results`, where they are."""
    results, curves = place / f"{README_EXPERIMENT}.json", place / README_CURVES
    if not (results.is_file() and curves.is_file()):
        return []
    lines = json.loads(curves.read_text("utf-8"))["curves"]
    draw_readme_plot(json.loads(results.read_text("utf-8")), lines, place / README_PLOT)
    return [place / README_PLOT]


def write_forests(docs: Path) -> list[Path]:
    """Draw the paired differences of each page."""
    found = _results(docs)
    place = docs / "results"
    groups = {
        RESULTS_PAGE: [result for result in found if not _is_ablation(result)],
        ABLATIONS_PAGE: [result for result in found if _is_ablation(result)],
    }
    return [
        draw_forest(group, place / f"forest-{name.removesuffix('.md')}.png")
        for name, group in groups.items()
        if group
    ]


def _results(docs: Path) -> list[Results]:
    files = sorted((docs / "results").glob("*.json"))
    found = [json.loads(path.read_text("utf-8")) for path in files]
    if not found:
        raise ExperimentError(f"{docs / 'results'} has no results: name finished runs")
    return found


def pages(docs: Path) -> dict[str, str]:
    """Return the text of each page by its file name."""
    found = _results(docs)
    ablations = {result["experiment"]: result for result in found if _is_ablation(result)}
    made = {RESULTS_PAGE: page([result for result in found if not _is_ablation(result)])}
    ablations_page = docs / ABLATIONS_PAGE
    if ablations_page.is_file():
        made[ABLATIONS_PAGE] = with_blocks(ablations_page.read_text("utf-8"), ablations)
    return made


def _is_ablation(result: Results) -> bool:
    return result["experiment"] in ablation_names()


def _copy_results(folder: RunFolder, place: Path) -> None:
    """Copy the results and the documented plots of a run."""
    if not folder.results_path.is_file():
        raise ExperimentError(f"{folder.path} is not finished: it has no results.json")
    results = folder.read("results.json")
    is_readmes = stem(results) == README_EXPERIMENT
    kept = readme_curves(folder.read("curves.json")["curves"]) if is_readmes else []
    there = [plot.name for plot in sorted(folder.path.glob("*.png"))]
    usual = [plot for plot in there if plot == "variants.png"] or there[:1]
    if results["preset"] != "laptop":
        usual = there
    wanted = folder.request().experiment.plots
    plots = [plot for plot in wanted if plot in there] or usual
    place.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        shutil.copy(folder.path / plot, place / f"{stem(results)}-{plot}")
    RunFolder(place).write(f"{stem(results)}.json", results | {"plots": plots})
    if kept:
        (place / README_CURVES).parent.mkdir(exist_ok=True)
        RunFolder(place).write(README_CURVES, {"curves": kept})
