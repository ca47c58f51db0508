"""Reconstruction: compute the records of a batch from the update of a network's first layer.

The gradient of the first layer's weights is Σⱼ δⱼ xⱼᵀ, that of its biases Σⱼ δⱼ, over the records
xⱼ. A neuron that record j does not activate has δⱼ = 0, so each δⱼ is a vector with many zeros in
the column space of the gradient. Vectors of that space that vanish at B − 1 neurons are computed
until those with most zeros are found; the records follow by solving linear equations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from protocol.model_bytes import ModelState

_TRIALS = 4000
_ZERO = 1e-4  # of the largest number of a vector; float32 keeps about 1e-6
_NEW = 1e-2
_CLOSE = 0.05
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Reconstruction:
    """The records of a batch and what the attacker takes for them, row by row.

    `found` says which of them are within 5 % of the record, relative to its norm.
    """

    records: Matrix
    guesses: Matrix
    found: NDArray[np.bool_]


def reconstruct(
    before: ModelState, after: ModelState, learning_rate: float, records: Matrix
) -> Reconstruction:
    """Guess the records of a batch from two models; `records` only judge and order the guesses."""
    weight, bias = list(before.parameters)[:2]
    gradient = np.concatenate(
        [
            _difference(before, after, weight, learning_rate),
            _difference(before, after, bias, learning_rate)[:, None],
        ],
        axis=1,
    )
    guesses = _guesses(gradient, len(records))
    errors = np.linalg.norm(guesses[None] - records[:, None], axis=2)
    errors /= np.maximum(np.linalg.norm(records, axis=1), 1e-12)[:, None]
    rows, columns = linear_sum_assignment(np.minimum(errors, 1e6))
    ordered = guesses[columns[np.argsort(rows)]]
    return Reconstruction(records, ordered, errors[rows, columns] < _CLOSE)


def _guesses(gradient: Matrix, batch: int) -> Matrix:
    """Return one guess for each record of the batch, zeros where there is none."""
    space, sizes, _ = np.linalg.svd(gradient, full_matrices=False)
    # Neurons that no record activates say nothing.
    active = np.abs(gradient).max(1) > _ZERO * np.abs(gradient).max()
    basis = (space * sizes)[:, :batch]
    sparse = _sparse_vectors(basis[active], batch)
    full = np.zeros((len(gradient), len(sparse)))
    full[active] = np.array(sparse).T if sparse else 0
    guesses = np.zeros((batch, gradient.shape[1] - 1))
    if sparse:
        solved = np.linalg.lstsq(full, gradient, rcond=None)[0]
        # The last column belongs to the biases, whose input is 1: it gives the scale.
        scale = np.where(np.abs(solved[:, -1:]) > 1e-9, solved[:, -1:], 1.0)
        guesses[: len(solved)] = (solved[:, :-1] / scale)[:batch]
    return guesses


def _sparse_vectors(basis: Matrix, batch: int) -> list[Matrix]:
    """Return the sparsest vectors of a column space, at most one for each record."""
    rng = np.random.default_rng(0)
    neurons = len(basis)
    if neurons < batch:
        return []
    if batch == 1:
        return [basis[:, 0]]
    picks = np.array([rng.choice(neurons, batch - 1, replace=False) for _ in range(_TRIALS)])
    # The vector that vanishes at the picked neurons: the last right singular vector of their rows.
    _, _, right = np.linalg.svd(basis[picks])
    vectors = basis @ right[:, -1].T
    vectors /= np.abs(vectors).max(0)
    zeros = (np.abs(vectors) < _ZERO).sum(0)
    chosen: list[Matrix] = []
    directions: list[Matrix] = []
    for number in np.argsort(-zeros, kind="stable"):
        one = vectors[:, number] / np.linalg.norm(vectors[:, number])
        # A combination of chosen vectors may have many zeros too: it is no other record's.
        rest = one - sum((other * (one @ other) for other in directions), np.zeros_like(one))
        if np.linalg.norm(rest) > _NEW:
            chosen.append(one)
            directions.append(rest / np.linalg.norm(rest))
        if len(chosen) == batch:
            break
    return chosen


def _difference(before: ModelState, after: ModelState, name: str, rate: float) -> Matrix:
    return (
        np.asarray(before.parameters[name], dtype=np.float64)
        - np.asarray(after.parameters[name], dtype=np.float64)
    ) / rate
