"""What ε costs in a leg: the processor's seconds, for a hospital with a long history.

A leg composes its releases with all that were charged before, for the check of `max-epsilon` and
for the audit log. `leg_s` is the median over legs, `first_leg_s` that of the first after a start of
the agent, which composes the whole history; both without the import of `dp_accounting`.

    python -m benchmarks.ledger [--experiments 10] [--legs 20] [--json]
"""

import argparse
import json
import time
from statistics import median

from learning.privacy import Release, epsilon

_DELTA = 1e-5
_ROUNDS_IN_A_LEG = 10
# Of one earlier experiment, and of the one under way: its kind of releases.
CASES = {"full batches": (60.0, 1.0), "poisson batches": (20.0, 0.25), "next to all": (8.0, 0.9)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--experiments", type=int, default=10, help="earlier ones, 200 rounds each")
    parser.add_argument("--legs", type=int, default=20, help="of the experiment under way")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    epsilon([Release(5.0, 0.5)], _DELTA)  # imports dp_accounting
    result = {
        name: measured(*kind, arguments.experiments, arguments.legs) for name, kind in CASES.items()
    }
    if arguments.json:
        print(json.dumps(result))
        return
    for name, row in result.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in row.items()))


def measured(multiplier: float, rate: float, experiments: int, legs: int) -> dict[str, float]:
    """Measure an experiment's legs, after earlier experiments with noise of their own."""
    history = [Release(multiplier + number, rate, 200) for number in range(1, experiments + 1)]
    seconds: list[float] = []
    spent = 0.0
    for leg in range(1, legs + 1):
        began = time.process_time()
        # Twice, as a hospital asks: the second finds what the first has composed.
        for _ in range(2):
            spent = epsilon([*history, Release(multiplier, rate, leg * _ROUNDS_IN_A_LEG)], _DELTA)
        seconds.append(time.process_time() - began)
    return {
        "leg_s": round(median(seconds[1:] or seconds), 4),
        "first_leg_s": round(seconds[0], 4),
        "epsilon": round(spent, 3),
    }


if __name__ == "__main__":
    main()
