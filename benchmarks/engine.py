"""The bench against a plain loop over the clients and against Flower's Ray simulation.

Client-rounds per second: one mini-batch step of one client's model, with its share of hand-overs
and aggregations (d = 1). The bench (`lab.engine`, its way to train chosen by itself) and the loop
(`benchmarks.plain_loop`) have a new process each for every task and take turns, so that a busy
moment of the machine is both's and neither profits from how another task left its memory; of
several turns the fastest counts, for the loop of torch's own number of threads and of one. Ray is
`feddc simulate` with our own ServerApp and ClientApp, envelopes off; counted is the fastest leg,
without Ray's start.

    python -m benchmarks.engine [--tasks linear mlp] [--turns 4] [--no-ray] [--json]
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

NAMES = ("linear", "mlp", "mnist-cnn", "mri-cnn", "resnet-small")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--tasks", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--no-ray", action="store_true", help="leave out Flower's simulation")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="feddc-benchmark-") as name:
        folder = Path(name)
        for task in arguments.tasks:
            with _contender(_bench, folder / "1") as bench, _contender(_loop, folder / "2") as loop:
                result[task] = _compared(task, bench, loop, arguments.turns)
            print(f"{task}: {result[task]}", file=sys.stderr, flush=True)  # it takes minutes
        if not arguments.no_ray:
            for task in arguments.tasks:
                ray = _on_ray(task, folder / f"ray-{task}")
                result[task]["flower_ray_client_rounds_per_s"] = _short(ray)
                rate = result[task]["client_rounds_per_s"]
                result[task]["vs_flower_ray"] = _short(rate / ray)
    if arguments.json:
        print(json.dumps(result))
        return
    for task, row in result.items():
        print(f"{task}: " + ", ".join(f"{key} {value}" for key, value in row.items()))


Ask = Callable[[str], Any]


def _compared(task: str, bench: Ask, loop: Ask, turns: int) -> dict[str, Any]:
    bench(task), loop(task)  # both warm up
    pairs = [(bench(task), loop(task)) for _ in range(turns)]
    fastest = max(rate for (rate, _), _ in pairs)
    plain = max(rate for _, rate in pairs)
    return {
        "client_rounds_per_s": _short(fastest),
        "loop_client_rounds_per_s": _short(plain),
        "vs_loop": _short(fastest / plain),
        "way": pairs[0][0][1],
    }


@contextmanager
def _contender(serve: Callable[[Connection, Path], None], folder: Path) -> Iterator[Ask]:
    """Start a process that runs a task whenever it is asked to, and returns how fast it was."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, folder), daemon=True)
    process.start()
    theirs.close()  # so that its end is noticed

    def ask(task: str) -> Any:
        ours.send(task)
        return ours.recv()

    try:
        yield ask
    finally:
        ours.close()
        process.join(timeout=10)


def _bench(pipe: Connection, folder: Path) -> None:
    from benchmarks.engine_tasks import Task, task
    from lab.engine import Way, run

    known: dict[str, tuple[Task, Way]] = {}
    for name in _asked(pipe):
        it, way = known.get(name) or (task(name, folder / name), "auto")
        outcome = run(it.bench(), way=way, evaluate_every=10**9, evaluate_clients=False)
        known[name] = (it, outcome.way)
        pipe.send((outcome.client_rounds_per_s, outcome.way))


def _loop(pipe: Connection, folder: Path) -> None:
    import torch

    from benchmarks.engine_tasks import Task, task
    from benchmarks.plain_loop import PlainLoop

    default = torch.get_num_threads()
    known: dict[str, tuple[Task, PlainLoop]] = {}
    for name in _asked(pipe):
        if name not in known:
            it = task(name, folder / name)
            known[name] = (it, PlainLoop(it.settings))
        it, loop = known[name]
        # Torch's threads wait for each other, which on a busy machine takes longer than one alone:
        # the faster of both counts.
        rates = []
        for threads in (default, 1):
            torch.set_num_threads(threads)
            rates.append(loop.client_rounds_per_s(it.loop_rounds))
        pipe.send(max(rates))


def _asked(pipe: Connection) -> Iterator[str]:
    while True:
        try:
            yield pipe.recv()
        except EOFError:
            return


def _on_ray(name: str, folder: Path) -> float:
    from benchmarks.engine_tasks import task
    from lab.simulate import simulate

    settings = task(name, folder / "data").on_ray()
    simulate(settings, run_dir=folder / "run")
    lines = (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    legs = [event for line in lines if (event := json.loads(line))["event"] == "leg"]
    return max(float(leg["answered"] / leg["seconds"]) for leg in legs)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
