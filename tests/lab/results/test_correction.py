"""Holm's correction, p-values, best rounds and stable leads, against numbers worked out by hand."""

from pathlib import Path

import pytest
from scipy.stats import ttest_1samp

from lab.results.correction import corrected, holm, p_value
from lab.results.course import best_point, is_stable, joint_curve
from lab.results.plots.forest_plot import draw_forest
from tests.lab.results.test_report import some_results


def test_p_values_are_those_of_the_t_test() -> None:
    values = [1.0, 2.5, 0.5, 3.0, -0.5]
    assert p_value(values) == pytest.approx(ttest_1samp(values, 0).pvalue)
    assert p_value(values, overlap=0.25) > p_value(values)  # type: ignore[operator]
    assert p_value([1.0, 2.0]) is None
    assert p_value([0.0, 0.0, 0.0]) == 1.0


def test_holm_steps_down_and_stops_at_the_first_that_fails() -> None:
    """Four tests: the limits are 0.0125, 0.0167, 0.025, 0.05, in the order of the p-values."""
    p_values = {("a", (1.0,)): 0.012, ("b", (1.0,)): 0.026, ("c", (1.0,)): 0.001, ("d", ()): 0.03}
    assert {name for name, _ in holm(p_values)} == {"a", "c"}
    assert holm({("a", ()): 0.04}) == {("a", ())}


def test_a_comparison_that_two_experiments_share_is_tested_once() -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.80, 0.80, 0.81))
    kept, tested = corrected([results, results | {"experiment": "other"}])
    assert tested == 1
    assert len(kept) == 1


def test_the_best_round_is_chosen_on_validation_data_and_reported_on_the_test_set() -> None:
    curve = [
        (10, 1, 1, 0.5, 0.4, 0.6, 0.2),
        (20, 2, 2, 0.7, 0.3, 0.8, 0.1),
        (30, 3, 3, 0.9, 0.2, 0.8, 0.0),
    ]
    assert best_point(curve, balanced=False) == (20, 70.0)
    assert best_point(curve, balanced=True) == (10, 40.0)
    assert best_point([(10, 1, 1, 0.5, 0.4, None, None)], balanced=False) is None
    assert joint_curve([curve, curve[1:]], balanced=False) == [(20, [70.0] * 2), (30, [90.0] * 2)]


def test_a_lead_is_stable_if_its_sign_holds_over_the_last_third() -> None:
    other = [(round_, [50.0]) for round_ in (30, 70, 80, 90)]
    assert is_stable([(30, [40.0]), (70, [51.0]), (80, [52.0]), (90, [51.0])], other) is True
    assert is_stable([(30, [60.0]), (70, [49.0]), (80, [52.0]), (90, [51.0])], other) is False
    assert is_stable([(90, [51.0])], other) is None


def test_the_forest_plot_has_a_row_for_each_comparison(tmp_path: Path) -> None:
    results = some_results(feddc=(0.90, 0.91, 0.90), fedavg_1=(0.88, 0.87, 0.88))
    path = draw_forest([results], tmp_path / "forest.png")
    assert path.read_bytes().startswith(b"\x89PNG")
