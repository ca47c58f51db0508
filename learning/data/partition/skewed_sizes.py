"""The paper's realistic distribution of data set sizes: many small hospitals, few large ones."""

from fractions import Fraction

from learning.data.examples import DataError


def skewed_sizes(
    hospitals: int, mean: int, *, small_fraction: float, min_examples: int
) -> list[int]:
    """Return increasing sizes that add up to hospitals · mean, none under `min_examples`.

    In the paper's words (appendix, "Realistic Dataset Size Distribution"): of m clients a
    fraction c hold n_min samples, and the others "have an increasing local dataset size
    starting from n_min until all data is distributed".
    """
    # As the decimal the user wrote: 0.29 · 100 is 28.999… in floating point.
    small = int(Fraction(str(float(small_fraction))) * hospitals)
    if not 0 <= small < hospitals:
        raise DataError(
            f"skew-small-fraction must be at least 0 and below 1, got {small_fraction}: somebody "
            "must hold the rest of the data"
        )
    rest = hospitals * (mean - min_examples)
    if rest < 0:
        raise DataError(
            f"skew-min-examples must be at most examples, {mean}, the mean of all hospitals, "
            f"got {min_examples}"
        )
    # The printed formula, sizes n_min + a·i for i = 1 … m − ⌊cm⌋ with
    # a = 2(n − ⌊cm⌋·n_min) / (k(k − 1)), k = ⌊(1 − c)m⌋, does not add up to n. For its
    # MRI experiment, n = 200, m = 25, c = 0.3, n_min = 2, it has ⌊cm⌋ = 7, k = 17 and
    # a = 2·186/(17·16) = 1.37, and the sizes sum to 7·2 + 18·2 + 1.37·(1 + … + 18) = 284.
    # Its denominator k(k − 1) is that of a sum over 0 … k − 1, which also makes the sizes
    # start from n_min as the text says; then all m clients hold n_min at least, so that
    # a = 2(n − m·n_min) / (k(k − 1)) with k = m − ⌊cm⌋. Here: a = 2·150/(18·17) = 0.98 and
    # 25·2 + 0.98·(0 + … + 17) = 200.
    growing = hospitals - small
    if growing == 1:
        return [min_examples] * small + [min_examples + rest]
    exact = [Fraction(2 * rest * i, growing * (growing - 1)) for i in range(growing)]
    return [min_examples] * small + [min_examples + extra for extra in _rounded(exact)]


def _rounded(exact: list[Fraction]) -> list[int]:
    """Round with the same sum: up where the fraction is largest, the last of equals first."""
    whole = [int(number) for number in exact]
    missing = int(sum(exact)) - sum(whole)
    by_fraction = sorted(range(len(exact)), key=lambda i: (exact[i] - whole[i], i), reverse=True)
    for i in by_fraction[:missing]:
        whole[i] += 1
    return whole
