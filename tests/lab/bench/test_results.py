"""Means, intervals and gains by hand; tables and plots that say what they should."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.results.curves import curves
from lab.results.plots import draw
from lab.results.result import results
from lab.results.statistics import spread, verdict
from lab.results.table import gain_lines, show
from lab.sweep import Plan, Record
from learning.metrics import Figures
from tests.lab.bench.conftest import plan


def record(method: str, seed: int, accuracy: float, clients: float = 0.5) -> Record:
    figures = Figures(0.1, accuracy, accuracy)
    return Record(
        "",
        method,
        seed,
        0.1,
        "done",
        test=figures,
        clients=Figures(0.2, clients, clients),
        held_out=figures,
        curve=[(3, 1, 12, accuracy / 2, 0.5), (6, 2, 24, accuracy, 0.5)],
        training=[(3, 0.5), (6, 1.0)],
        aggregations=2,
        messages=24,
        seconds=1.0,
    )


def finished(**accuracies: tuple[float, float]) -> tuple[Plan, dict[str, Record]]:
    """Return a plan with one learning rate and records of these accuracies on its two seeds."""
    ours = plan(laptop={"learning-rates": [0.1]})
    given = {name.replace("_", "-"): values for name, values in accuracies.items()}
    records = {
        ours.final(cell, seed, 0.1).key: record(
            cell.method.name, seed, given[cell.method.name][seed]
        )
        for cell in ours.cells
        for seed in (0, 1)
        if cell.method.name in given
    }
    return ours, records


def test_spread_by_hand() -> None:
    assert spread([80.0, 84.0, 85.0]).mean == 83.0
    assert spread([80.0, 84.0, 85.0]).max_deviation == 3.0
    assert spread([80.0, 84.0, 85.0]).interval is None
    # Five values: mean 3, variance 2.5, t(0.975; 4) = 2.776; half width 2.776·√(2.5/5) = 1.963.
    low, high = spread([1.0, 2.0, 3.0, 4.0, 5.0]).interval or (0, 0)
    assert (low, high) == pytest.approx((1.037, 4.963), abs=1e-3)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 2.0, 3.0], "ahead"),
        ([-1.0, 2.0, 3.0], "no difference"),
        ([-1.0, -2.0], "behind"),
        ([-0.1, 5.0, 5.0, 5.0, 5.0, 5.0], "ahead"),  # the interval decides, not the worst seed
        ([0.1, 9.0, 0.1, 0.1, 0.1], "no difference"),
    ],
)
def test_a_verdict_claims_no_more_than_the_seeds_support(values: list[float], said: str) -> None:
    assert verdict(spread(values)) == said


def test_gains_are_paired_over_seeds() -> None:
    ours, records = finished(feddc=(0.90, 0.80), fedavg_1=(0.88, 0.79), fedavg_b=(0.95, 0.70))
    found = results(ours, records, 1.0)
    by = {gain["over"]: gain for gain in found["gains"]}
    assert by["fedavg-1"]["gain"]["values"] == pytest.approx((2.0, 1.0))
    assert by["fedavg-1"]["paper"] == 2.5
    assert by["fedavg-1"]["verdict"] == "ahead"
    assert by["fedavg-b"]["gain"]["values"] == pytest.approx((-5.0, 10.0))
    assert by["fedavg-b"]["paper"] is None
    assert by["fedavg-b"]["verdict"] == "no difference"
    assert gain_lines(found)[1] == (
        "FedDC(1, 3) over FedAvg(1): +1.5 points (seeds from +1.0 to +2.0): ahead; the paper +2.5"
    )


def test_the_table_has_both_judgements_beside_the_papers() -> None:
    ours, records = finished(feddc=(0.90, 0.80), fedavg_b=(0.7, 0.7), central=(0.9, 0.9))
    out = io.StringIO()
    show(Console(file=out, width=120), results(ours, records, 1.0))
    lines = [line.strip() for line in out.getvalue().splitlines()]
    (feddc,) = [line for line in lines if line.startswith("FedDC(1, 3)  ")]
    assert "85.0 ± 5.0" in feddc
    assert "50.0 ± 0.0" in feddc
    assert "90.5 ± 0.5" in feddc
    (missing,) = [line for line in lines if line.startswith("FedAvg(1)")]
    assert "diverged" in missing


def test_results_do_not_tell_where_the_data_are() -> None:
    ours = plan(settings={"data-dir": "/home/somebody/patients"})
    assert "somebody" not in json.dumps(results(ours, {}, 1.0))


def test_a_diverged_method_has_no_gain() -> None:
    ours, records = finished(feddc=(0.90, 0.80))
    assert results(ours, records, 1.0)["gains"] == []


def test_curves_are_means_with_the_seeds_extremes() -> None:
    ours, records = finished(feddc=(0.90, 0.80))
    (curve,) = curves(ours, records)
    assert curve["test"][-1] == [6, 2, 24, 85.0, 80.0, 90.0]
    assert curve["training"][0] == [3, 50.0, 50.0, 50.0]


def test_plots_are_drawn_with_axes_units_legend_and_the_papers_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    seen: dict[str, Figure] = {}

    def keep(figure: Figure, path: Path, **_: Any) -> None:
        seen[Path(path).name] = figure

    monkeypatch.setattr(Figure, "savefig", keep)
    ours, records = finished(feddc=(0.90, 0.80), fedavg_b=(0.7, 0.7), central=(0.9, 0.9))
    draw(results(ours, records, 1.0), curves(ours, records), tmp_path)

    assert set(seen) == {"rounds.png", "communication.png"}
    panel = seen["rounds.png"].axes[0]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("rounds", "accuracy, %")
    dashed = [line for line in panel.lines if line.get_linestyle() == "--"]
    assert [set(line.get_ydata()) for line in dashed] == [{90.5}]
    left, right = seen["communication.png"].axes[:2]
    assert "aggregations" in left.get_xlabel()
    assert "models sent" in right.get_xlabel()
    for figure in seen.values():
        assert figure.legends
