"""Audit: does the agent's training really spend the ε that its ledger says?

A patient is planted whose gradient has a direction of its own. A linear model with hinge loss, far
from its margins, has the same gradient in every round: so the released weight of the feature that
only this patient has tells best whether the patient is there. From many runs with and without the
patient follows, with 95 % confidence, a lower bound of ε.
"""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

from client_app.hospital.local_training import LocalTraining, parse_settings
from learning.data import Examples, Partition
from learning.privacy import NoiseSource, noise_for_epsilon
from protocol.descriptor import Descriptor
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams

EPSILON, DELTA, ROUNDS, RUNS, FEATURES = 4.0, 1e-5, 2, 1000, 6
KEY = NoiseSource(bytes(range(32)))


def training(multiplier: float, *, is_planted: bool) -> LocalTraining:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(8, FEATURES)).astype(np.float32)
    features[:, -1] = 0
    labels = np.arange(8) % 2
    if is_planted:
        features = np.concatenate([features, np.zeros((1, FEATURES), np.float32)])
        features[-1, -1] = 50.0
        labels = np.append(labels, 1)
    settings: dict[str, Any] = {
        "model": "linear",
        "model-options": '{"outputs": 1}',
        "loss": "hinge",
        "learning-rate": 1e-4,
        "privacy-unit": "patient",
        "clip-norm": 1.0,
        "nominal-patients": 8,
        "noise-multiplier": multiplier,
    }
    agreed = Descriptor(
        experiment="e",
        rounds=ROUNDS,
        daisy_period=None,
        aggregation_period=None,
        init="own",
        shape=(FEATURES,),
        classes=2,
        training=settings,
        training_seed=bytes(32),
        sealed=False,
        roster=bytes(32),
    )
    own = Partition("H", Examples(features, labels), Examples(features[:0], labels[:0]))
    streams = TrainingStreams(bytes(32), 0)
    return LocalTraining(agreed, parse_settings(agreed), own, streams, "cpu")


def released(multiplier: float, *, is_planted: bool) -> NDArray[np.float64]:
    """Return the weight of the planted patient's feature in many runs, each with its own key."""
    here = training(multiplier, is_planted=is_planted)
    first = here.first_model()
    name = next(name for name in first.parameters if "weight" in name)
    start = ModelState({n: np.zeros_like(a) for n, a in first.parameters.items()}, first.buffers)
    found = []
    for run in range(RUNS):
        noise = KEY.source("planted" if is_planted else "absent", run)
        model, _ = here.train_patients(start, range(ROUNDS), noise, last_is_quiet=False)
        found.append(float(model.parameters[name].ravel()[-1]))
    return np.array(found)


def lower_bound(multiplier: float) -> float:
    """Return ε's 95 % lower bound, if the two distributions are Gaussian with one deviation."""
    present, absent = (released(multiplier, is_planted=planted) for planted in (True, False))
    deviation = math.sqrt((present.var(ddof=1) + absent.var(ddof=1)) / 2)
    mu = abs(present.mean() - absent.mean()) / deviation
    # The standard error of a difference of means in deviations (Hedges and Olkin).
    error = math.sqrt(2 / RUNS + mu**2 / (4 * RUNS))
    return exact_epsilon(mu - norm.ppf(0.95) * error)


def exact_epsilon(mu: float) -> float:
    """Return ε of a Gaussian mechanism (Balle & Wang 2018)."""

    def excess(eps: float) -> float:
        below = norm.cdf(mu / 2 - eps / mu)
        return float(below - math.exp(eps + norm.logcdf(-mu / 2 - eps / mu)) - DELTA)

    return float(brentq(excess, 1e-9, 100))


@pytest.mark.slow
def test_an_attacker_learns_nearly_what_the_ledger_says_and_no_more() -> None:
    multiplier = noise_for_epsilon(EPSILON, DELTA, count=ROUNDS)

    assert 2 <= lower_bound(multiplier) <= EPSILON


@pytest.mark.slow
def test_the_audit_notices_half_the_noise() -> None:
    multiplier = noise_for_epsilon(EPSILON, DELTA, count=ROUNDS)

    assert lower_bound(multiplier / 2) > EPSILON
