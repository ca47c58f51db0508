"""FedDC in plain mode against Flower's FedAvg with the same ClientApp, and its peak memory.

`vs_fedavg` is the time of a round of FedDC (a hand-over in every round, an aggregation in every
tenth) over the time of a round of FedAvg: 50 nodes, a small model, federated evaluation off, and a
Grid that calls the ClientApp in this process. Both are measured in turns; the medians count.

`peak_mb_100` is the peak memory (resident set size) of a process in which 100 nodes train models
of 45 MB through plain mode: a hand-over, then an aggregation. The process does not import PyTorch,
whose libraries alone take up to 530 MB, because the strategy does not need it.

    python -m benchmarks.plain [--turns 7] [--nodes 100] [--megabytes 45] [--json]
"""

import argparse
import json
import logging
import resource
import subprocess
import sys
import time
from statistics import median

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from feddc import FedDC
from lab.flower.in_process import InProcessGrid

_NODES, _ROUNDS = 50, 20
_ARRAYS = 4  # of each model
_SMALL = 1000  # numbers in each of them
_PEAK_OPTION = "--peak-only"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--nodes", type=int, default=100, help="of the measurement of memory")
    parser.add_argument("--megabytes", type=int, default=45)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(_PEAK_OPTION, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if arguments.peak_only:
        print(peak_megabytes(arguments.nodes, arguments.megabytes))
        return
    feddc, fedavg = seconds_per_round(arguments.turns)
    result = {
        "vs_fedavg": round(feddc / fedavg, 3),
        "feddc_ms": round(1000 * feddc, 2),
        "fedavg_ms": round(1000 * fedavg, 2),
        f"peak_mb_{arguments.nodes}": _peak_of_a_process(arguments.nodes, arguments.megabytes),
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:12} {value:g}")


def seconds_per_round(turns: int) -> tuple[float, float]:
    """Return the median seconds of a round of FedDC and of FedAvg."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns + 1):
        for strategy, found in zip(
            (FedDC(_fedavg(), daisy_period=1, aggregation_period=10), _fedavg()), times, strict=True
        ):
            start = time.perf_counter()
            _run(strategy, nodes=_NODES, rounds=_ROUNDS, numbers=_SMALL)
            if turn:  # the first one only warms up
                found.append((time.perf_counter() - start) / _ROUNDS)
    return median(times[0]), median(times[1])


def peak_megabytes(nodes: int, megabytes: int) -> float:
    """Return the peak memory of this process after a hand-over and an aggregation."""
    if "torch" in sys.modules:
        raise RuntimeError("PyTorch was imported, and its memory would be counted")
    numbers = megabytes * 1_000_000 // (4 * _ARRAYS)
    _run(FedDC(_fedavg(), aggregation_period=2), nodes=nodes, rounds=2, numbers=numbers)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


def _peak_of_a_process(nodes: int, megabytes: int) -> float:
    command = [sys.executable, "-m", "benchmarks.plain", _PEAK_OPTION]
    options = ["--nodes", str(nodes), "--megabytes", str(megabytes)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)  # noqa: S603 (this module)
    return float(done.stdout)


def _run(strategy: Strategy, *, nodes: int, rounds: int, numbers: int) -> None:
    arrays = {f"layer-{i}": Array(np.zeros(numbers, np.float32)) for i in range(_ARRAYS)}
    strategy.start(InProcessGrid(_client(), nodes, {}), ArrayRecord(arrays), num_rounds=rounds)


def _fedavg() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0)


def _client() -> ClientApp:
    """Return a ClientApp that only moves its model a little: what is left is the server's time."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content.array_records["arrays"]
        step = np.float32(1e-3 * (context.node_id % 7))
        trained = {name: Array(array.numpy() + step) for name, array in arrays.items()}
        metrics = MetricRecord({"num-examples": 8})
        content = RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


if __name__ == "__main__":
    main()
