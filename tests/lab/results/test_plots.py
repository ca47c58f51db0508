"""Plots that can be read without the text: what is in them, and where."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.results.plots.communication_plot import draw, main_curves
from lab.results.plots.curves import curves
from lab.results.plots.plot_style import limits
from lab.results.plots.variant_plot import over_variants
from lab.results.result import results
from lab.results.row import Row, rows_of
from tests.lab.results.test_results import finished

Figures = dict[str, Figure]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Figures:
    """Keep figures instead of writing them."""
    seen: Figures = {}

    def keep(figure: Figure, path: Path, **_: Any) -> None:
        seen[Path(path).name] = figure

    monkeypatch.setattr(Figure, "savefig", keep)
    return seen


def draw_all(folder: Path) -> None:
    ours, records = finished(
        feddc=(0.90, 0.80), fedavg_1=(0.2, 0.1), fedavg_b=(0.7, 0.7), central=(0.9, 0.9)
    )
    sent = {  # what is trained in one place sends no models
        key: replace(record, messages=0) if record.method == "central" else record
        for key, record in records.items()
    }
    draw(results(ours, sent, 1.0), curves(ours, sent), folder)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def lines(axes: Axes) -> dict[str, Any]:
    return {str(line.get_label()): line for line in axes.lines}


def test_plots_have_axes_units_legend_task_and_the_papers_level(
    tmp_path: Path, drawn: Figures
) -> None:
    draw_all(tmp_path)
    assert set(drawn) == {"rounds.png", "communication.png"}
    panel, corner = drawn["rounds.png"].axes[0], drawn["rounds.png"].axes[3]
    assert (corner.get_xlabel(), corner.get_ylabel()) == ("rounds", "accuracy, %")
    assert all(tick == int(tick) for tick in panel.get_xticks())
    dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
    assert [set(line.get_ydata()) for line in dashed] == [{90.5}]
    for figure in drawn.values():
        assert "laptop preset, 2 seeds (the paper's levels: its own sizes)" in figure.get_suptitle()
    left, right = drawn["communication.png"].axes[:2]
    for place in (left, right):
        assert set(lines(place)["all data together"].get_ydata()) == {90.0}
    assert "aggregations" in left.get_xlabel()
    assert "models sent" in right.get_xlabel()
    for figure in drawn.values():
        assert figure.legends
        assert "breast-cancer, 4 hospitals, 6 examples each, 6 rounds" in figure.get_suptitle()


@pytest.mark.parametrize(
    ("methods", "kept"),
    [
        (
            "feddc daisy-chaining fedavg-1 fedavg-b fedprox fedadam fedyogi sgd central",
            "feddc daisy-chaining fedavg-1 fedavg-b central",
        ),
        (
            "feddc daisy-chaining radon-1 radon-b feddc-mean fedavg-1 fedavg-b sgd central",
            "feddc radon-1 radon-b fedavg-1 fedavg-b",
        ),
        ("feddc feddc-fedprox fedavg-b fedprox", "feddc feddc-fedprox fedavg-b"),
    ],
)
def test_communication_is_shown_of_five_methods_at_most(methods: str, kept: str) -> None:
    shown = main_curves([{"method": method} for method in methods.split()])
    assert [curve["method"] for curve in shown] == kept.split()


def test_levels_far_above_what_was_measured_leave_it_its_room(
    tmp_path: Path, drawn: Figures
) -> None:
    ours, records = finished(feddc=(0.30, 0.28), fedavg_1=(0.2, 0.25), fedavg_b=(0.22, 0.2))
    draw(results(ours, records, 1.0), curves(ours, records), tmp_path)
    above, _, panel, _ = drawn["communication.png"].axes
    levels = {level for line in above.lines for level in line.get_ydata()}
    assert 90.5 in levels
    assert all(above.get_ylim()[0] < level < above.get_ylim()[1] for level in levels)
    assert panel.get_ylim()[1] < 40
    assert any("the paper, FedDC" in text for text in legend(drawn["communication.png"]))


def test_the_papers_levels_are_named_and_told_apart(tmp_path: Path, drawn: Figures) -> None:
    draw_all(tmp_path)
    figure = drawn["communication.png"]
    names = ["the paper, FedDC(1, 3): 90.5", "the paper, FedAvg(1): 88"]
    assert set(names) <= set(legend(figure))
    one, other = (lines(figure.axes[0])[name] for name in names)
    assert one.get_color() != other.get_color()
    assert one._dash_pattern != other._dash_pattern


def test_all_curves_stay_in_the_panel_with_the_seeds_range(tmp_path: Path, drawn: Figures) -> None:
    draw_all(tmp_path)
    for panel in drawn["communication.png"].axes:
        assert len(panel.collections) == 3  # a band for FedDC, FedAvg(1) and FedAvg(b)
    bad_start = [[0, 0, 0, 30.0, 21.0, 40.0]]
    curve = {"test": bad_start + [[n, n, n, 90.0, 85.0, 95.0] for n in range(1, 100)]}
    low, high = limits([], [curve], test_only=True)
    assert low < 21.0
    assert high > 95.0


def test_chains_alone_have_a_mark_that_says_what_it_is(tmp_path: Path, drawn: Figures) -> None:
    ours, records = finished(feddc=(0.90, 0.80), fedavg_b=(0.7, 0.7))
    found = results(ours, records, 1.0)
    found["rows"][0] |= {"judged_by": "clients", "label": "chains"}
    draw(found, curves(ours, records), tmp_path)
    label = "chains (clients' mean at the end)"
    assert label in legend(drawn["communication.png"])
    assert list(lines(drawn["communication.png"].axes[0])[label].get_ydata()) == [50.0]


def rows_over(variants: dict[str, float | None]) -> tuple[dict[str, Any], list[Row]]:
    ours, records = finished(feddc=(0.90, 0.80), fedavg_b=(0.9, 0.8))
    found = results(ours, records, 1.0)
    found["variants"] = {name: {"rounds": 1} for name in variants}
    told = [row for row in rows_of(found) if row.headline]
    return found, [replace(r, variant=name, x=x) for name, x in variants.items() for r in told]


@pytest.mark.parametrize("first", [1.0, 0.0])  # a logarithmic axis, and one with 0 in it
def test_methods_of_the_same_accuracy_do_not_hide_each_other(
    tmp_path: Path, drawn: Figures, first: float
) -> None:
    found, rows = rows_over({"a": first, "b": 10.0})
    over_variants(found, rows, tmp_path / "variants.png")
    (axes,) = drawn["variants.png"].axes
    ours, other = axes.lines[0].get_xdata(), axes.containers[1].lines[0].get_xdata()
    for one, two, tick in zip(ours, other, axes.get_xticks(), strict=True):
        assert one < tick < two
    assert "the paper, FedDC(1, 3)" in legend(drawn["variants.png"])
    title = drawn["variants.png"].get_suptitle()
    assert "4 hospitals, 6 examples each;" in title  # and not the rounds, which vary


def test_the_only_method_of_a_variant_is_on_its_row(tmp_path: Path, drawn: Figures) -> None:
    found, rows = rows_over({"both": None, "one": None})
    rows = [row for row in rows if (row.variant, row.method) != ("one", "fedavg-b")]
    over_variants(found, rows, tmp_path / "variants.png")
    (axes,) = drawn["variants.png"].axes
    assert list(axes.containers[0].lines[0].get_ydata()) == pytest.approx([-0.2, 1.0])
    dashed = "the paper, in the method's colour"
    assert dashed in legend(drawn["variants.png"])
