"""`feddc lab bound`: the paper's numerical examples, and its Lemma against brute force."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lab.bound import BoundError, Question, bound, printed_rounds
from lab.cli import app
from lab.coverage import all_chains_bound, chain_probability, simulate_all_chains
from strategies.routing.permutation import assign

SUSY = Question(hospitals=441, examples=2, epsilon=0.05, delta=0.01)
CIFAR10 = Question(hospitals=150, examples=64, epsilon=0.01, delta=0.01)


@pytest.mark.parametrize(
    ("question", "printed", "at_delta"), [(SUSY, 24.78, 49.90), (CIFAR10, 4.10, 8.32)]
)
def test_the_printed_bounds_of_the_papers_examples(
    question: Question, printed: float, at_delta: float
) -> None:
    answer = bound(question, simulate=False)
    assert answer.printed_bound == pytest.approx(printed, abs=0.005)
    assert answer.printed_bound_at_delta == pytest.approx(at_delta, abs=0.005)
    assert answer.rounds == math.ceil(printed)


def test_the_printed_bound_is_the_formula_in_exact_arithmetic() -> None:
    m, k, d, rho = 30, 7, 3, 0.1
    harmonic = [sum((Fraction(1, i) for i in range(1, n + 1)), Fraction()) for n in range(m + 1)]
    exact = d * m / rho ** (1 / m) * float(harmonic[m] - harmonic[m - k])
    assert printed_rounds(k, m, d, rho) == pytest.approx(exact, rel=1e-12)


def test_one_and_all_chains_against_every_possible_route() -> None:
    """Three legs of three hospitals have (3!)³ routes; a fourth leg of two hospitals 2⁴."""
    for m, legs in ((3, 3), (2, 4)):
        routes = list(product(permutations(range(m)), repeat=legs))
        distinct = [[len({leg[chain] for leg in route}) for chain in range(m)] for route in routes]
        for k in range(1, m + 1):
            one = sum(visits[0] >= k for visits in distinct) / len(routes)
            every = sum(min(visits) >= k for visits in distinct) / len(routes)
            assert chain_probability(m, k, legs) == pytest.approx(one, abs=1e-12)
            assert simulate_all_chains(m, k, legs).value == pytest.approx(every, abs=0.02)
            assert all_chains_bound(m, k, legs) <= every + 1e-12


@pytest.mark.parametrize(
    ("m", "k", "rounds", "expected"), [(150, 15, 16, 0.0), (441, 24, 25, 0.0), (10, 5, 9, 0.65)]
)
def test_the_papers_lemma_fails_for_all_chains(
    m: int, k: int, rounds: int, expected: float
) -> None:
    """Its promise is 0.9 for each of the three; a plain simulation tells what holds."""
    assert printed_rounds(k, m, 1, 0.1) <= rounds
    options = ["--hospitals", str(m), "--visits", str(k), "--rounds", str(rounds), "--json"]
    answer = json.loads(CliRunner().invoke(app, ["bound", *options]).output)
    assert answer["all_chains_probability"] == pytest.approx(expected, abs=0.02)
    assert answer["coverage_legs"] == k
    runs = 3000 if m == 10 else 20
    assert answer["all_chains_probability"] == pytest.approx(
        _simulated(m, k, rounds, runs=runs), abs=0.03
    )


def _simulated(m: int, k: int, legs: int, *, runs: int) -> float:
    rng, reached = np.random.default_rng(1), 0
    for _ in range(runs):
        seen: list[set[int]] = [set() for _ in range(m)]
        for _ in range(legs):
            for chain, place in enumerate(rng.permutation(m).tolist()):
                seen[chain].add(place)
        reached += min(len(places) for places in seen) >= k
    return reached / runs


def test_the_corrected_period_is_the_shortest_that_keeps_the_promise() -> None:
    answer = bound(SUSY, simulate=False)
    period, root = answer.aggregation_period, math.sqrt(SUSY.delta)
    assert period is not None
    assert all_chains_bound(441, answer.visits, period) >= 1 - root
    assert all_chains_bound(441, answer.visits, period - 1) < 1 - root
    slower = bound(replace(SUSY, daisy_period=3), simulate=False)
    assert slower.aggregation_period == 3 * period
    assert slower.coverage_legs == answer.coverage_legs == 24


def test_coverage_permutations_visit_a_new_hospital_in_every_leg() -> None:
    m, k = 9, 9
    rng = np.random.default_rng(0)
    visited = [{chain} for chain in range(m)]
    at = list(range(m))  # the hospital of each chain

    def been(sender: int, recipient: int) -> int:
        return int(recipient in visited[at.index(sender)])

    for _ in range(k - 1):
        drawn = assign("coverage", list(range(m)), list(range(m)), been, rng)
        at[:] = [drawn[place] for place in at]
        for chain, place in enumerate(at):
            visited[chain].add(place)
    assert [len(places) for places in visited] == [k] * m


def test_the_conditions_of_proposition_5_are_checked() -> None:
    met = bound(replace(SUSY, parameters=19, iterations=2), simulate=False).conditions
    assert [condition.met for condition in met] == [True, True]
    failed = bound(replace(CIFAR10, parameters=1000), simulate=False).conditions
    assert [condition.met for condition in failed] == [False, False]
    options = ["--hospitals", "441", "--examples", "2", "--parameters", "19", "--delta", "0.05"]
    output = CliRunner().invoke(app, ["bound", *options, "--radon-iterations", "2"]).output
    assert "NOT MET: δ < 1/r" in output
    assert "met: m ≥ r^h: 441 against 21^2 = 441" in output


def test_too_few_examples_in_all_have_no_period() -> None:
    answer = bound(Question(hospitals=5, examples=2, epsilon=0.01, delta=0.01))
    assert answer.aggregation_period is None
    assert answer.printed_bound is None
    result = CliRunner().invoke(
        app, ["bound", "--hospitals", "5", "--examples", "2", "--epsilon", "0.01"]
    )
    assert result.exit_code == 0
    assert "no aggregation period is long enough" in " ".join(result.output.split())


def test_the_command_prints_json_and_draws_both_figures(tmp_path: Path) -> None:
    options = ["--hospitals", "441", "--examples", "2", "--figures", str(tmp_path / "figures")]
    result = CliRunner().invoke(app, ["bound", *options, "--json"])
    answer = json.loads(result.output)
    assert answer["printed_bound"] == pytest.approx(24.78, abs=0.005)
    assert answer["printed_bound_at_delta"] == pytest.approx(49.90, abs=0.005)
    assert [Path(path).stat().st_size > 10_000 for path in answer["figures"]] == [True, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hospitals": 1}, "hospitals must be at least 2, got 1"),
        ({"delta": 1.0}, "delta must be more than 0 and less than 1, got 1.0"),
        ({"daisy_period": 0}, "daisy-period must be at least 1, got 0"),
        ({"examples": None}, "give the examples per hospital, or visits"),
        ({"visits": 442}, "visits must be at most the 441 hospitals, got 442"),
    ],
)
def test_impossible_questions_are_refused(changes: dict[str, float | None], message: str) -> None:
    with pytest.raises(BoundError, match=message):
        Question(**{**vars(SUSY), **changes})  # type: ignore[arg-type]


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
