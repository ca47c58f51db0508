"""When a figure over several hospitals may be handed out: it must not tell one hospital's own."""

LEAST_IN_A_MEAN = 3  # with two, each knows the other's part


def is_pooled(hospitals: float) -> bool:
    """Return whether a mean or a total is of enough hospitals."""
    return hospitals >= LEAST_IN_A_MEAN


def gives_away(others: float) -> bool:
    """Return whether a figure over all tells that of the others, if the rest publish theirs."""
    return 0 < others < LEAST_IN_A_MEAN
