"""Time and memory of a client-round in the lab's engine as the clients grow from 10 to 1000.

An MLP on 8 random examples per client, d = 1, b = 10, trained batched and as a loop. Every size
runs in its own process, the sizes in turn; the fastest of several turns counts. Time is processor
time, which other programs do not affect. Memory is the peak of the process, including torch.

    python -m benchmarks.scaling [--turns 3] [--json]
"""

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIZES = (10, 100, 1000)
_CLIENT_ROUNDS = 20_000
_LOOP_CLIENT_ROUNDS = 3000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    turns: dict[int, list[dict[str, float]]] = {size: [] for size in SIZES}
    with tempfile.TemporaryDirectory(prefix="feddc-benchmark-") as folder:
        for _ in range(arguments.turns):
            for size in SIZES:
                # A new process for each: its peak must not include the memory of the one before.
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    turns[size].append(pool.apply(_measure, (size, folder)))
    result = _summary({size: _best(measured) for size, measured in turns.items()})
    if arguments.json:
        print(json.dumps(result))
        return
    for key, value in result.items():
        print(f"{key}: {value}")


def _best(turns: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(turn[key] for turn in turns) for key in turns[0]}


def _summary(best: dict[int, dict[str, float]]) -> dict[str, Any]:
    ten, hundred, thousand = (best[size] for size in SIZES)
    return {
        "cost_1000_vs_10": round(thousand["batched"] / ten["batched"], 3),
        "loop_cost_1000_vs_10": round(thousand["loop"] / ten["loop"], 3),
        # 1 means linear: 900 more clients take 10 times as much as 90 more.
        "memory_growth_vs_linear": round(
            (thousand["megabytes"] - hundred["megabytes"])
            / (10 * (hundred["megabytes"] - ten["megabytes"])),
            3,
        ),
        "microseconds": {size: round(1e6 * row["batched"], 2) for size, row in best.items()},
        "loop_microseconds": {size: round(1e6 * row["loop"], 2) for size, row in best.items()},
        "megabytes": {size: round(row["megabytes"], 1) for size, row in best.items()},
    }


def _measure(clients: int, folder: str) -> dict[str, float]:
    """Return the processor time of a client-round, and the memory of a batched run."""
    import torch

    from benchmarks.support.engine_tasks import stand_in
    from lab.engine import Backend, run
    from lab.engine.backends.speed import Speedometer

    torch.set_num_threads(1)
    Speedometer.clock = staticmethod(time.process_time)
    settings = stand_in(Path(folder) / str(clients), clients=clients)
    measured: dict[str, float] = {}
    amounts: dict[Backend, int] = {"batched": _CLIENT_ROUNDS, "loop": _LOOP_CLIENT_ROUNDS}
    for backend, amount in amounts.items():
        longer = settings.replace(rounds=max(10, amount // clients))
        outcome = run(
            longer, backend=backend, workers=1, evaluate_every=10**9, evaluate_clients=False
        )
        measured[backend] = 1 / outcome.client_rounds_per_s
        measured.setdefault("megabytes", _peak_megabytes())
    return measured


def _peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
