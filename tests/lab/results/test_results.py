"""Means, intervals and gains by hand; tables and plots that say what they should."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from lab.results.plots.curves import curves
from lab.results.result import results
from lab.results.row import Row, name_of, rows_of
from lab.results.sizes import Sizes, sizes
from lab.results.statistics import spread, verdict
from lab.results.table import gain_lines, remarks, show
from lab.results.text import rates_text
from lab.sweep import Record, SweepPlan
from learning.metrics import Metrics
from tests.lab.conftest import plan, tiny

ONE_RATE = {"learning-rates": [0.1], "seeds": 5}


def record(method: str, seed: int, accuracy: float, clients: float = 0.5) -> Record:
    metrics = Metrics(0.1, accuracy, accuracy)
    return Record(
        "",
        method,
        seed,
        0.1,
        "done",
        test=metrics,
        clients=Metrics(0.2, clients, clients),
        held_out=metrics,
        curve=[
            (3, 1, 12, accuracy / 2, 0.5, None, None),
            (6, 2, 24, accuracy, 0.5, None, None),
        ],
        training=[(3, 0.5, 0.25, 0.75), (6, 1.0, 1.0, 1.0)],
        aggregations=2,
        messages=24,
        seconds=1.0,
    )


def finished(**accuracies: tuple[float, ...]) -> tuple[SweepPlan, dict[str, Record]]:
    """Return a plan with one learning rate and records of these accuracies, one for each seed."""
    seeds = len(next(iter(accuracies.values())))
    ours = plan(laptop={"learning-rates": [0.1], "seeds": seeds})
    given = {name.replace("_", "-"): values for name, values in accuracies.items()}
    records = {
        ours.final(cell, seed, 0.1).key: record(
            cell.method.name, seed, given[cell.method.name][seed]
        )
        for cell in ours.cells
        for seed in ours.seeds
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
        ([-1.0, 2.0, 3.0], "undecided"),
        ([-1.0, -2.0, -3.0, -0.1], "behind"),
        ([5.0], "one seed: no verdict"),
        ([-5.0, -6.0], "two seeds: no verdict"),
        ([-0.1, 5.0, 5.0, 5.0, 5.0, 5.0], "ahead"),  # the interval decides, not the worst seed
        ([0.1, 9.0, 0.1, 0.1, 0.1], "undecided"),
    ],
)
def test_a_verdict_claims_no_more_than_the_seeds_support(values: list[float], said: str) -> None:
    assert verdict(spread(values)) == said


def test_seeds_that_share_their_examples_have_a_wider_interval_by_hand() -> None:
    # As above, with 1/5 + 1/4 for 1/5: half width 2.776·√(2.5·0.45) = 2.945.
    low, high = spread([1.0, 2.0, 3.0, 4.0, 5.0], overlap=0.25).interval or (0, 0)
    assert (low, high) == pytest.approx((0.055, 5.945), abs=1e-3)
    assert verdict(spread([1.0, 2.0, 3.0, 4.0, 5.0], overlap=0.3)) == "undecided"


def test_means_and_gains_of_resplit_data_are_corrected_by_the_real_sizes() -> None:
    values = (0.90, 0.80, 0.85, 0.95, 0.83)
    ours, records = finished(feddc=values, fedavg_1=(0.7, 0.7, 0.7, 0.7, 0.7))
    once = results(ours, records, 1.0)
    resplit = SweepPlan(replace(ours.request, experiment=tiny(choose="each-seed", laptop=ONE_RATE)))
    each = results(resplit, records, 1.0)
    row = each["rows"][0]
    # scikit-learn's breast cancer has 569 patients, of whom a fifth are tested with.
    assert (row["test_size"], row["pool_size"], row["overlap"]) == (114, 455, 0.2505)
    assert once["rows"][0]["overlap"] == 0.0
    for wide, narrow in (
        (row["aggregate"], once["rows"][0]["aggregate"]),
        (each["gains"][0]["gain"], once["gains"][0]["gain"]),
    ):
        width = {id(one): one["interval"][1] - one["interval"][0] for one in (wide, narrow)}
        by_hand = math.sqrt((1 / 5 + 114 / 455) / (1 / 5))
        assert width[id(wide)] / width[id(narrow)] == pytest.approx(by_hand, abs=1e-3)


def test_a_publishers_test_set_is_the_same_for_all_seeds_and_needs_no_correction(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    for number, place in enumerate(["train/a", "train/b", "test/a", "test/b"]):
        (tmp_path / place).mkdir(parents=True)
        for image in range(6):
            pixels = rng.integers(0, 255, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / place / f"{number}-{image}.png")
    settings = {"dataset": "image-folder", "data-dir": str(tmp_path), "image-size": 8}
    ours = plan(choose="each-seed", settings=settings)
    assert sizes(ours, ours.cells[0].variant) == Sizes(test=12, pool=12, overlap=0.0)


def test_gains_are_paired_over_seeds() -> None:
    ours, records = finished(
        feddc=(0.90, 0.80, 0.80), fedavg_1=(0.88, 0.79, 0.79), fedavg_b=(0.95, 0.70, 0.70)
    )
    found = results(ours, records, 1.0)
    by = {gain["over"]: gain for gain in found["gains"]}
    assert by["fedavg-1"]["gain"]["values"] == pytest.approx((2.0, 1.0, 1.0))
    assert by["fedavg-1"]["paper"] == 2.5
    assert by["fedavg-1"]["verdict"] == "ahead"
    assert by["fedavg-b"]["gain"]["values"] == pytest.approx((-5.0, 10.0, 10.0))
    assert by["fedavg-b"]["paper"] is None
    assert by["fedavg-b"]["verdict"] == "undecided"
    assert gain_lines(found)[1] == (
        "FedDC(1, 3) over FedAvg(1): +1.3 points (seeds +1.0 … +2.0): ahead; the paper +2.5"
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


def remarks_with(test_sample: int) -> str:
    ours, records = finished(feddc=(0.9, 0.8))
    return " ".join(remarks(results(ours, records, 1.0) | {"test_sample": test_sample}))


def test_a_sample_of_the_test_set_is_named_only_where_the_set_is_larger() -> None:
    assert "Tested on 114 examples." in remarks_with(1000)
    assert "1,000" not in remarks_with(1000)
    assert "Hospitals' own models and the curves: on 100 of them." in remarks_with(100)


def with_rates(chosen: list[float], grid: list[float]) -> Row:
    ours, records = finished(feddc=(0.9, 0.8))
    row = rows_of(results(ours, records, 1.0))[0]
    tried: dict[str, float | None] = {f"{rate:g}": 50.0 for rate in grid}
    return replace(row, learning_rates=chosen, candidates=tried)


def test_a_learning_rate_at_an_edge_of_the_grid_is_marked() -> None:
    assert rates_text(with_rates([0.1, 0.3], [0.1, 0.3, 0.9])) == "0.1 ↓, 0.3"
    assert rates_text(with_rates([0.9], [0.1, 0.3, 0.9])) == "0.9 ↑"
    assert rates_text(with_rates([0.1], [])) == "0.1"  # no choice, no edge


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        (["FedDC(1, 40)", "FedDC(5, 40)"], "FedDC(d, 40)"),
        (["FedDC(1, 5)", "FedDC(1, 10)"], "FedDC(1, b)"),
        (["FedDC(1, 5)", "FedDC(2, 10)"], "FedDC(d, b)"),
        (["FedAvg(5)", "FedAvg(10)"], "FedAvg(b)"),
        (["FedAvg(5)", "FedAvg(5)"], "FedAvg(5)"),
        (["all data together"], "all data together"),
    ],
)
def test_a_methods_name_over_variants_has_letters_for_what_varies(
    labels: list[str], name: str
) -> None:
    rows = [replace(with_rates([0.1], []), label=label) for label in labels]
    assert name_of(rows, "feddc") == name


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


def test_of_several_points_in_one_round_the_last_is_kept() -> None:
    ours, records = finished(feddc=(0.90, 0.80))
    more = {
        key: replace(record, training=[(3, 0.1, 0, 1), (3, 0.5, 0, 1), (6, 1.0, 1, 1)])
        for key, record in records.items()
    }
    (curve,) = curves(ours, more)
    assert curve["training"] == [[3, 50.0, 50.0, 50.0], [6, 100.0, 100.0, 100.0]]
