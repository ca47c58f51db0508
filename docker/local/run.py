"""Run a federation on one machine and compare it with training alone: `make federation`.

Builds the images, starts a coordinator and three hospitals with new keys, trains a model at each
hospital alone, runs FedDC, prints both accuracies and removes everything. Fails if the accuracy of
FedDC is too low. KEEP=1 leaves the federation running; `python3 docker/local/run.py down` removes
it. NOISE=1 runs FedDC with differential privacy and prints each hospital's ε.
"""

# ruff: noqa: T201 (prints its result)

import os
import sys
import time
from typing import Any

from accuracies import Accuracies, TooLow
from federation import HOSPITALS, NOISE, SETTINGS, Failed, Federation, log


def main() -> None:
    federation = Federation()
    if sys.argv[1:] == ["down"]:
        federation.down()
        return
    try:
        run(federation)
    except (Failed, TooLow) as error:
        sys.exit(str(error))
    finally:
        if not os.environ.get("KEEP"):
            log("removing the federation; KEEP=1 keeps it")
            federation.down()


def run(federation: Federation) -> None:
    """Build, bring up, train, print; raise TooLow if FedDC has not learned."""
    start = time.monotonic()
    federation.build()
    built = time.monotonic()
    federation.up()
    up = time.monotonic()
    log("each hospital trains a model alone")
    alone = federation.train_alone(SETTINGS)
    trained = time.monotonic()
    log("the hospitals train one model with FedDC")
    has_noise = bool(os.environ.get("NOISE"))
    outcome = federation.run(SETTINGS | NOISE if has_noise else SETTINGS)
    accuracies = Accuracies(alone, federation.aggregate_accuracies(SETTINGS, outcome))
    end = time.monotonic()
    report(outcome, accuracies)
    log(
        f"images {built - start:.0f} s, federation up {up - built:.0f} s, "
        f"alone {trained - up:.0f} s, FedDC {end - trained:.0f} s"
    )
    if has_noise:
        for name, epsilon in federation.epsilons().items():
            print(f"{name}: ε = {epsilon:.3f} for each patient")
    else:
        accuracies.check()


def report(outcome: dict[str, Any], accuracies: Accuracies) -> None:
    """Print the result of the experiment."""
    print(
        f"\n{accuracies.table()}\n\n"
        f"legs                {outcome['legs']}: {outcome['hand_overs']} hand-overs, "
        f"{outcome['aggregations']} aggregations\n"
        f"chains              {len(HOSPITALS)}, lost {outcome['lost_chains']}, "
        f"missed rounds {outcome['missed_rounds']}\n"
        f"hand-overs sealed   {'yes' if outcome['sealed'] else 'NO'}\n"
    )


if __name__ == "__main__":
    main()
