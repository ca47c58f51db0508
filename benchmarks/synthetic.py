"""The paper's synthetic experiment: FedDC against FedAvg with the same aggregation period.

50 hospitals with 10 examples each, an MLP, Adam 1e-3, d = 1, b = 200, T = 1000, own initial
models, optimiser state kept as in the authors' scripts. The real ServerApp and ClientApp run on an
in-process Grid, because Ray would need hours for the 150 000 client-rounds of three seeds.

    python -m benchmarks.synthetic [--seeds 3] [--json]
"""

import argparse
import json
import logging
import statistics
import tempfile
import time
from pathlib import Path

import torch

from lab.flower.in_process import simulate_in_process
from operation.config import Scalar
from server_app.config.run_config import Settings

TASK: dict[str, Scalar] = {
    "dataset": "synthetic",
    "hospitals": 50,
    "examples": 10,
    "held-out": 0,
    "model": "mlp",
    "optimizer": "adam",
    "optimizer-state": "kept",
    "learning-rate": 1e-3,
    "init": "own",
    "rounds": 1000,
    "aggregation-period": 200,
    "sealed": False,  # faster, with the same parameters
}
METHODS: dict[str, dict[str, Scalar]] = {
    "feddc": {"daisy-period": 1},
    "fedavg_b": {"daisy-period": 0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="FedDC against FedAvg on the synthetic data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    started = time.monotonic()
    accuracies: dict[str, list[float]] = {method: [] for method in METHODS}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.seeds):
            for method, periods in METHODS.items():
                settings = Settings.from_run_config(
                    TASK | periods | {"seed": seed}, source="benchmarks.synthetic"
                )
                summary = simulate_in_process(settings, Path(folder) / f"{method}-{seed}")
                accuracies[method].append(summary["test_accuracy"])
                if not arguments.json:
                    print(f"seed {seed}, {method}: {summary['test_accuracy']:.3f}", flush=True)
    means = {method: statistics.mean(values) for method, values in accuracies.items()}
    gain = 100 * (means["feddc"] - means["fedavg_b"])
    result = {
        **accuracies,
        "feddc_mean": means["feddc"],
        "fedavg_b_mean": means["fedavg_b"],
        "gain_points": gain,
        "seconds": time.monotonic() - started,
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"FedDC {means['feddc']:.3f}, FedAvg(200) {means['fedavg_b']:.3f}, {gain:+.1f}")


if __name__ == "__main__":
    main()
