"""Who receives whose model: random assignments of chains to the hospitals present."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar, get_args

import numpy as np
from scipy.optimize import linear_sum_assignment

Permutation = Literal["uniform", "derangement", "coverage"]
P = TypeVar("P", bound=int)  # a hospital's position
_TRIES = 100


def assign(
    permutation: Permutation,
    senders: Sequence[P],
    recipients: Sequence[P],
    visits: Callable[[P, P], int],
    rng: np.random.Generator,
) -> dict[P, P]:
    """Return a recipient for every sender; no recipient is used twice.

    `uniform` is the paper's: all permutations equally likely, fixed points allowed. `derangement`
    is uniform among those in which no model stays where it is. `coverage` lets no chain visit a
    hospital twice before it has visited all that are present. Where that is impossible, the last
    two choose an assignment with the fewest offences. `visits(sender, recipient)` counts how often
    the sender's chain has been at the recipient. None of them is a fixed cyclic shift, which
    would tell every recipient who sent.
    """
    if len(senders) != len(recipients):
        raise ValueError(f"{len(senders)} senders but {len(recipients)} recipients")
    match permutation:
        case "uniform":
            return _shuffled(senders, recipients, rng)
        case "derangement":
            for _ in range(_TRIES):  # e tries are expected
                drawn = _shuffled(senders, recipients, rng)
                if all(sender != recipient for sender, recipient in drawn.items()):
                    return drawn
            offence = {(s, r): s == r for s in senders for r in recipients}
        case "coverage":
            offence = {}
            for sender in senders:
                counts = {recipient: visits(sender, recipient) for recipient in recipients}
                fewest = min(counts.values())
                offence |= {(sender, r): count > fewest for r, count in counts.items()}
        case _:
            raise ValueError(
                f"permutation must be one of {', '.join(get_args(Permutation))}, got {permutation}"
            )
    return _fewest_offences(senders, recipients, offence, rng)


def _shuffled(
    senders: Sequence[P], recipients: Sequence[P], rng: np.random.Generator
) -> dict[P, P]:
    order = rng.permutation(len(recipients))
    return {sender: recipients[k] for sender, k in zip(senders, order, strict=True)}


def _fewest_offences(
    senders: Sequence[P],
    recipients: Sequence[P],
    offence: Mapping[tuple[P, P], bool],
    rng: np.random.Generator,
) -> dict[P, P]:
    costs = np.array([[offence[s, r] for r in recipients] for s in senders], dtype=float)
    costs = costs.reshape(len(senders), len(recipients))  # two-dimensional also without senders
    # Ties are broken at random by amounts that never add up to one offence.
    costs += rng.random(costs.shape) / (len(senders) + 1)
    _, columns = linear_sum_assignment(costs)
    return {sender: recipients[k] for sender, k in zip(senders, columns, strict=True)}
