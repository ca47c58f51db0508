"""`feddc lab bound`: the paper's numerical examples, and the Lemma against a simulation."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lab.bound import BoundError, Question, bound, rounds_to_visit
from lab.cli import app

SUSY = Question(hospitals=441, examples=2, epsilon=0.05, delta=0.01)
CIFAR10 = Question(hospitals=150, examples=64, epsilon=0.01, delta=0.01)


@pytest.mark.parametrize(
    ("question", "printed", "at_delta"), [(SUSY, 24.78, 49.90), (CIFAR10, 4.10, 8.32)]
)
def test_bounds_of_the_papers_examples(question: Question, printed: float, at_delta: float) -> None:
    answer = bound(question)
    assert answer.aggregation_period_bound == pytest.approx(printed, abs=0.005)
    assert answer.aggregation_period_bound_at_delta == pytest.approx(at_delta, abs=0.005)
    assert answer.aggregation_period == math.ceil(printed)


def test_the_bound_is_the_formula_in_exact_arithmetic() -> None:
    m, k, d, rho = 30, 7, 3, 0.1
    harmonic = [sum((Fraction(1, i) for i in range(1, n + 1)), Fraction()) for n in range(m + 1)]
    exact = d * m / rho ** (1 / m) * float(harmonic[m] - harmonic[m - k])
    assert rounds_to_visit(k, m, d, rho) == pytest.approx(exact, rel=1e-12)


def test_a_chain_visits_as_many_hospitals_as_expected() -> None:
    """With ρ = 1 the Lemma is the coupon collector's mean, which a simulation shows."""
    rng, m, k = np.random.default_rng(0), 12, 8
    lengths = []
    for _ in range(4000):
        seen: set[int] = set()
        length = 0
        while len(seen) < k:
            seen.add(int(rng.integers(m)))
            length += 1
        lengths.append(length)
    assert np.mean(lengths) == pytest.approx(rounds_to_visit(k, m, 1, 1.0), rel=0.03)


def test_too_few_examples_in_all_have_no_period() -> None:
    answer = bound(Question(hospitals=5, examples=2, epsilon=0.01, delta=0.01))
    assert answer.aggregation_period is None
    assert answer.aggregation_period_bound is None
    result = CliRunner().invoke(
        app, ["bound", "--hospitals", "5", "--examples", "2", "--epsilon", "0.01"]
    )
    assert result.exit_code == 0
    assert "no aggregation period is long enough" in " ".join(result.output.split())


def test_the_command_prints_json_and_draws_both_figures(tmp_path: Path) -> None:
    options = ["--hospitals", "441", "--examples", "2", "--figures", str(tmp_path / "figures")]
    result = CliRunner().invoke(app, ["bound", *options, "--json"])
    answer = json.loads(result.output)
    assert answer["aggregation_period_bound"] == pytest.approx(24.78, abs=0.005)
    assert answer["aggregation_period_bound_at_delta"] == pytest.approx(49.90, abs=0.005)
    assert [Path(path).stat().st_size > 10_000 for path in answer["figures"]] == [True, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hospitals": 1}, "hospitals must be at least 2, got 1"),
        ({"delta": 1.0}, "delta must be more than 0 and less than 1, got 1.0"),
        ({"daisy_period": 0}, "daisy-period must be at least 1, got 0"),
    ],
)
def test_impossible_questions_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(BoundError, match=message):
        Question(**{**vars(SUSY), **changes})


def test_data_says_what_is_missing_and_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDDC_DATA", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    result = CliRunner().invoke(app, ["data", "--json"])
    rows = {row["name"]: row for row in json.loads(result.output)}
    assert rows["digits"] == {
        "name": "digits",
        "folder": None,
        "examples": 1797,
        "state": "built in",
        "source": "needs no files",
    }
    assert rows["cifar10"]["state"] == "missing"
    assert rows["cifar10"]["folder"] == str(tmp_path / "cifar10")
    assert "Toronto" in rows["cifar10"]["source"]
    assert str(tmp_path / "mnist") in rows["mnist"]["state"]  # there, but not what it should be
    monkeypatch.delenv("FEDDC_DATA")
    result = CliRunner().invoke(app, ["data", "--json"])
    rows = {row["name"]: row for row in json.loads(result.output)}
    assert rows["mnist"]["state"] == "set FEDDC_DATA, then mnist/"
