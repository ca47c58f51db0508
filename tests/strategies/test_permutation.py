"""Assignments are bijections with the promised distribution, compared with all permutations."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise, permutations
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from strategies.routing.permutation import Permutation, assign

KINDS = get_args(Permutation)
PATIENT = settings(deadline=None)  # the machine may be busy


def no_visits(sender: int, recipient: int) -> int:
    """Return the visits of a chain that has only been where it is now."""
    return int(sender == recipient)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@st.composite
def meetings(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Draw senders and as many recipients, from one roster, the two sets overlapping or not."""
    size = draw(st.integers(0, 9))
    hospitals = st.lists(st.integers(0, 14), min_size=size, max_size=size, unique=True)
    return draw(hospitals), draw(hospitals)


@PATIENT
@given(kind=st.sampled_from(KINDS), meeting=meetings(), data=st.data())
def test_every_sender_has_a_recipient_of_its_own(
    kind: Permutation, meeting: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    senders, recipients = meeting
    table = data.draw(
        st.dictionaries(st.tuples(st.integers(0, 14), st.integers(0, 14)), st.integers(0, 3))
    )
    seed = data.draw(st.integers(0, 1000))
    routes = assign(kind, senders, recipients, lambda s, r: table.get((s, r), 0), rng(seed))
    assert list(routes) == senders
    assert sorted(routes.values()) == sorted(recipients)


@pytest.mark.parametrize("kind", KINDS)
def test_same_generator_same_routes_other_generator_other_routes(kind: Permutation) -> None:
    def routes(seed: int) -> dict[int, int]:
        return assign(kind, range(12), range(12), no_visits, rng(seed))

    assert routes(1) == routes(1)
    assert len({tuple(routes(seed).values()) for seed in range(20)}) > 15


def frequencies(kind: Permutation, size: int, draws: int) -> Counter[tuple[int, ...]]:
    generator = rng(20230501)
    hospitals = list(range(size))
    return Counter(
        tuple(assign(kind, hospitals, hospitals, no_visits, generator).values())
        for _ in range(draws)
    )


def test_uniform_draws_all_permutations_equally_often_fixed_points_included() -> None:
    drawn = frequencies("uniform", 4, 12_000)
    assert set(drawn) == set(permutations(range(4)))
    assert chisquare(list(drawn.values())).pvalue > 0.001
    staying = sum(n * sum(i == r for i, r in enumerate(p)) for p, n in drawn.items())
    assert staying / 12_000 == pytest.approx(1.0, abs=0.05)  # one fixed point on average


def test_derangement_draws_all_derangements_equally_often_and_nothing_else() -> None:
    drawn = frequencies("derangement", 4, 9_000)
    derangements = {p for p in permutations(range(4)) if all(i != r for i, r in enumerate(p))}
    assert len(derangements) == 9
    assert set(drawn) == derangements
    assert chisquare(list(drawn.values())).pvalue > 0.001


@pytest.mark.parametrize("kind", ["uniform", "derangement", "coverage"])
def test_every_hospital_sends_to_every_other_about_equally_often(kind: Permutation) -> None:
    # Were one shift preferred, its recipients would know who sent.
    drawn = frequencies(kind, 5, 2_000)
    to = np.zeros((5, 5))
    for routes, times in drawn.items():
        for sender, recipient in enumerate(routes):
            to[sender, recipient] += times
    expected = 2_000 / 5 if kind == "uniform" else 2_000 / 4
    others = ~np.eye(5, dtype=bool) if kind != "uniform" else np.ones((5, 5), dtype=bool)
    np.testing.assert_allclose(to[others], expected, rtol=0.2)
    assert not to[~others].any()


@PATIENT
@given(meeting=meetings(), seed=st.integers(0, 1000))
def test_derangement_leaves_a_model_in_place_only_where_it_must(
    meeting: tuple[list[int], list[int]], seed: int
) -> None:
    senders, recipients = meeting
    routes = assign("derangement", senders, recipients, no_visits, rng(seed))
    stay = sum(s == r for s, r in routes.items())
    # Only a hospital that is alone with itself can't avoid it.
    assert stay == (1 if senders == recipients and len(senders) == 1 else 0)


def repeats(
    routes: dict[int, int], recipients: list[int], visits: Callable[[int, int], int]
) -> int:
    """Count the chains sent somewhere although they were less often somewhere else present."""
    return sum(
        visits(s, r) > min(visits(s, other) for other in recipients) for s, r in routes.items()
    )


@PATIENT
@given(size=st.integers(1, 5), data=st.data())
def test_coverage_repeats_as_rarely_as_the_best_of_all_permutations(
    size: int, data: st.DataObject
) -> None:
    count = st.integers(0, 2)
    row = st.lists(count, min_size=size, max_size=size)
    table = data.draw(st.lists(row, min_size=size, max_size=size))
    hospitals = list(range(size))

    def visits(sender: int, recipient: int) -> int:
        return table[sender][recipient]

    routes = assign("coverage", hospitals, hospitals, visits, rng(data.draw(st.integers(0, 99))))
    best = min(
        repeats(dict(zip(hospitals, p, strict=True)), hospitals, visits)
        for p in permutations(hospitals)
    )
    assert repeats(routes, hospitals, visits) == best


def test_coverage_takes_any_of_the_best_permutations() -> None:
    # Two chains were at 0 and 1, two at 2 and 3: four repeat-free assignments.
    table = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    drawn = {
        tuple(assign("coverage", range(4), range(4), lambda s, r: table[s][r], rng(n)).values())
        for n in range(60)
    }
    assert drawn == {(2, 3, 0, 1), (2, 3, 1, 0), (3, 2, 0, 1), (3, 2, 1, 0)}


def walk(hospitals: int, legs: int, seed: int) -> list[list[int]]:
    """Let every chain travel by coverage; return where each was, leg by leg."""
    at = list(range(hospitals))  # chain → hospital
    journeys = [[place] for place in at]
    generator = rng(seed)
    for _ in range(legs - 1):
        chain_of = {place: chain for chain, place in enumerate(at)}

        def visits(
            sender: int, recipient: int, chain_of: dict[int, int] = chain_of
        ) -> int:  # its past, the present hospital included
            return journeys[chain_of[sender]].count(recipient)

        routes = assign("coverage", range(hospitals), range(hospitals), visits, generator)
        at = [routes[place] for place in at]
        for chain, place in enumerate(at):
            journeys[chain].append(place)
    return journeys


@PATIENT
@given(hospitals=st.integers(2, 9), seed=st.integers(0, 1000))
def test_coverage_visits_every_hospital_once_and_then_again(hospitals: int, seed: int) -> None:
    for journey in walk(hospitals, 2 * hospitals, seed):
        assert sorted(journey[:hospitals]) == list(range(hospitals))
        assert sorted(journey[hospitals:]) == list(range(hospitals))


def test_coverage_is_no_fixed_cyclic_shift() -> None:
    shifts = Counter()
    for seed in range(50):
        for journey in walk(6, 6, seed):
            steps = [(b - a) % 6 for a, b in pairwise(journey)]
            shifts[len(set(steps)) == 1] += 1
    assert shifts[True] < 0.05 * shifts.total()


def test_coverage_ignores_hospitals_that_are_absent() -> None:
    # The chain at 0 was at 1 and 2; only 3, which is absent, would be new.
    seen = {(0, 0): 1, (0, 1): 1, (0, 2): 1, (1, 1): 1, (2, 2): 1}
    for seed in range(20):
        routes = assign(
            "coverage", [0, 1, 2], [0, 1, 2], lambda s, r: seen.get((s, r), 0), rng(seed)
        )
        assert sorted(routes.values()) == [0, 1, 2]
        assert routes[1] != 1
        assert routes[2] != 2


def test_unequal_numbers_and_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="2 senders but 1 recipients"):
        assign("uniform", [0, 1], [0], no_visits, rng())
    with pytest.raises(ValueError, match="one of uniform, derangement, coverage, got ring"):
        assign("ring", [0], [0], no_visits, rng())  # type: ignore[arg-type]
