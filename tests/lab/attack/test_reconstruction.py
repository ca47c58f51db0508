"""Reconstruction of records from an update that was computed by hand."""

import numpy as np
import pytest

from lab.attack.reconstruction import reconstruct
from protocol.model_bytes import ModelState

NEURONS, PIXELS, RATE = 60, 20, 0.5


def models(
    records: np.ndarray[tuple[int, int], np.dtype[np.float64]], noise: float
) -> tuple[ModelState, ModelState]:
    """One step on a first layer whose every neuron sees about half of the records."""
    rng = np.random.default_rng(1)
    deltas = rng.normal(size=(NEURONS, len(records))) * (rng.random((NEURONS, len(records))) < 0.5)
    before = {"w": rng.normal(size=(NEURONS, PIXELS)), "b": rng.normal(size=NEURONS)}
    gradients = {"w": deltas @ records, "b": deltas.sum(1)}
    after = {
        name: value - RATE * (gradients[name] + noise * rng.normal(size=value.shape))
        for name, value in before.items()
    }
    return tuple(  # type: ignore[return-value]
        ModelState({name: value.astype(np.float32) for name, value in each.items()}, {})
        for each in (before, after)
    )


@pytest.mark.parametrize("batch", [1, 2, 4, 8])
def test_records_are_recovered_from_the_update(batch: int) -> None:
    records = np.random.default_rng(2).random((batch, PIXELS))
    found = reconstruct(*models(records, 0.0), RATE, records)
    assert found.found.all()
    np.testing.assert_allclose(found.guesses, records, atol=0.02)


@pytest.mark.parametrize("batch", [2, 8])
def test_noise_as_large_as_the_gradient_hides_all_records(batch: int) -> None:
    records = np.random.default_rng(2).random((batch, PIXELS))
    found = reconstruct(*models(records, 1.0), RATE, records)
    assert not found.found.any()
    assert np.isfinite(found.guesses).all()
