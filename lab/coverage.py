"""How many hospitals a chain visits: exactly for one chain, bounded and simulated for all chains.

With uniform permutations the place of one model in each leg is uniform and independent of the legs
before, so its number of distinct hospitals has the occupancy distribution. The chains together are
not independent; the union bound needs no independence. docs/chains.md derives both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RUNS = 4000
_LEAST_RUNS = 200
_DRAWS = 6 * 10**7  # in all, so that long chains of many hospitals take seconds
_DRAWS_AT_ONCE = 2 * 10**6


@dataclass(frozen=True)
class SimulatedProbability:
    """A probability estimated from so many independent runs."""

    value: float
    runs: int


def distinct_hospitals(hospitals: int, legs: int) -> NDArray[np.float64]:
    """Return P(one chain has visited j distinct hospitals after `legs` legs) for j = 0 … m."""
    probabilities = np.zeros(hospitals + 1)
    probabilities[0] = 1.0
    for _ in range(legs):
        probabilities = _one_more_leg(probabilities)
    return probabilities


def chain_probability(hospitals: int, visits: int, legs: int) -> float:
    """Return P(one chain has visited at least `visits` hospitals after `legs` legs)."""
    return float(distinct_hospitals(hospitals, legs)[visits:].sum())


def all_chains_bound(hospitals: int, visits: int, legs: int) -> float:
    """Return the union bound: P(all chains have) ≥ 1 − m · P(one chain has not)."""
    missed = float(distinct_hospitals(hospitals, legs)[:visits].sum())
    return max(0.0, 1 - hospitals * missed)


def legs_needed(hospitals: int, visits: int, missed: float) -> int:
    """Return the fewest legs after which P(one chain has fewer than `visits`) ≤ `missed`."""
    probabilities = np.zeros(hospitals + 1)
    probabilities[0] = 1.0
    legs = 0
    while probabilities[:visits].sum() > missed:
        probabilities = _one_more_leg(probabilities)
        legs += 1
    return legs


def simulate_all_chains(hospitals: int, visits: int, legs: int) -> SimulatedProbability:
    """Estimate P(all chains have visited at least `visits` hospitals after `legs` legs).

    The random numbers are fixed, so the same question has the same answer.
    """
    draws = hospitals * legs
    runs = int(np.clip(_DRAWS // draws, _LEAST_RUNS, _RUNS))
    rng = np.random.default_rng(0)
    successes = 0
    at_once = max(1, _DRAWS_AT_ONCE // draws)
    for first in range(0, runs, at_once):
        count = min(at_once, runs - first)
        # In leg s of a run, chain i is at hospital places[run, s, i]: a permutation in every leg.
        everyone = np.broadcast_to(np.arange(hospitals, dtype=np.int32), (count, legs, hospitals))
        places = np.sort(rng.permuted(everyone, axis=2), axis=1)
        distinct = 1 + (np.diff(places, axis=1) != 0).sum(axis=1)
        successes += int((distinct >= visits).all(axis=1).sum())
    return SimulatedProbability(successes / runs, runs)


def _one_more_leg(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move from `legs` to `legs` + 1: the next hospital is old with probability j/m."""
    hospitals = len(probabilities) - 1
    old = np.arange(hospitals + 1) / hospitals
    stayed = probabilities * old
    stayed[1:] += probabilities[:-1] * (1 - old[:-1])
    return stayed
