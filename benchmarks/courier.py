"""Start-up time of the courier against that of a ClientApp that imports torch.

Flower starts a new Python process for every message, so every leg takes at least this time. Each
run measures all three in turn, so that a busy moment of the machine affects all of them.

    python -m benchmarks.courier [--runs 7] [--json]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

STARTS = {
    "flower": "from flwr.clientapp import ClientApp",  # every ClientApp needs it
    "courier": "from client_app.courier import app",
    "torch_clientapp": "import torch\nfrom client_app.courier import app",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in STARTS}
    for number in range(arguments.runs + 1):
        for name, imports in STARTS.items():
            taken = _start(imports)
            if number:  # the first run warms the disk cache
                seconds[name].append(taken)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    result = {
        **{f"{name}_seconds": round(median, 3) for name, median in medians.items()},
        "courier_above_flower_seconds": round(medians["courier"] - medians["flower"], 3),
        "start_vs_torch_clientapp": round(medians["courier"] / medians["torch_clientapp"], 3),
        "runs": arguments.runs,
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(
            f"Flower alone {medians['flower']:.2f} s, courier {medians['courier']:.2f} s, "
            f"with torch {medians['torch_clientapp']:.2f} s: "
            f"{result['start_vs_torch_clientapp']:.2f} of it"
        )


def _start(imports: str) -> float:
    """Return the seconds that a new Python process takes to start, import and exit."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", imports], check=True)  # noqa: S603 (our own code)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
