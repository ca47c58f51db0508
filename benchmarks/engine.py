"""The lab's engine against a plain loop over the clients and against Flower's Ray simulation.

The unit is client-rounds per second: one mini-batch step of one client's model, including
hand-overs and aggregations (d = 1). The engine (`lab.engine`, backend `auto`) and the loop
(`benchmarks.support.plain_loop`, with one thread per core or one thread, whichever is faster in its
first turn) take turns, so that a busy moment of the machine affects both. The speed of a loop
varies by up to a factor of two with the memory layout of its process, so each task is measured in
several pairs of new processes. Results are medians over all turns; `vs_loop_at_best` compares the
fastest turns. Ray is `feddc simulate` with this project's ServerApp and ClientApp, without
envelopes; its fastest leg counts, without the start of Ray. Two figures are ratios of processor
time on one thread, which other work on the machine hardly changes: `vs_bmm`, the MLP with SGD
against a step written by hand with torch.bmm, and `radon`'s `vs_direct`, an aggregation of 441
linear models against the pure function.

    python -m benchmarks.engine [--tasks linear mlp] [--pairs 3] [--turns 3] [--no-ray] [--json]
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
from statistics import median
from typing import Any

NAMES = ("linear", "mlp", "mnist-cnn", "mri-cnn", "resnet-small")
RADON = "radon"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--tasks", nargs="+", choices=(*NAMES, RADON), default=(*NAMES, RADON))
    parser.add_argument("--pairs", type=int, default=3, help="of processes, for each task")
    parser.add_argument("--turns", type=int, default=3, help="of each process")
    parser.add_argument("--no-ray", action="store_true", help="leave out Flower's simulation")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="feddc-benchmark-") as name:
        folder = Path(name)
        for task in arguments.tasks:
            result[task] = (
                _compared(task, folder, arguments.pairs, arguments.turns) if task != RADON else {}
            )
            if task in (RADON, "mlp"):
                with _contender(_one_thread, task, folder / f"{task}-one-thread") as measure:
                    result[task] |= {name: _short(value) for name, value in measure().items()}
            print(f"{task}: {result[task]}", file=sys.stderr, flush=True)  # it takes minutes
        if not arguments.no_ray:
            for task in (task for task in arguments.tasks if task != RADON):
                ray = _on_ray(task, folder / f"ray-{task}")
                result[task]["flower_ray_client_rounds_per_s"] = _short(ray)
                rate = result[task]["client_rounds_per_s"]
                result[task]["vs_flower_ray"] = _short(rate / ray)
    if arguments.json:
        print(json.dumps(result))
        return
    for task, row in result.items():
        print(f"{task}: " + ", ".join(f"{key} {value}" for key, value in row.items()))


Ask = Callable[[], Any]


def _compared(task: str, folder: Path, pairs: int, turns: int) -> dict[str, Any]:
    ours: list[float] = []
    plain: list[float] = []
    backends: set[str] = set()
    for pair in range(pairs):
        with (
            _contender(_engine, task, folder / f"{task}-{pair}-engine") as engine,
            _contender(_loop, task, folder / f"{task}-{pair}-loop") as loop,
        ):
            engine(), loop()  # warm up, and choose a backend or the threads
            for _ in range(turns):
                rate, backend = engine()
                ours.append(rate)
                backends.add(backend)
                plain.append(loop())
    return {
        "client_rounds_per_s": _short(median(ours)),
        "loop_client_rounds_per_s": _short(median(plain)),
        "vs_loop": _short(median(ours) / median(plain)),
        "vs_loop_at_best": _short(max(ours) / max(plain)),
        "backend": ", ".join(sorted(backends)),
    }


@contextmanager
def _contender(
    serve: Callable[[Connection, str, Path], None], task: str, folder: Path
) -> Iterator[Ask]:
    """Start a process that runs the task on request and returns its speed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, task, folder), daemon=True)
    process.start()
    theirs.close()  # otherwise the end of the process goes unnoticed

    def ask() -> Any:
        ours.send("go")
        return ours.recv()

    try:
        yield ask
    finally:
        ours.close()
        process.join(timeout=10)


def _engine(pipe: Connection, name: str, folder: Path) -> None:
    from benchmarks.support.engine_tasks import task
    from lab.engine import Backend, run

    settings = task(name, folder).on_engine()
    backend: Backend = "auto"
    for _ in _asked(pipe):
        outcome = run(settings, backend=backend, evaluate_every=10**9, evaluate_clients=False)
        backend = outcome.backend
        pipe.send((outcome.client_rounds_per_s, backend))


def _loop(pipe: Connection, name: str, folder: Path) -> None:
    import torch

    from benchmarks.support.engine_tasks import task
    from benchmarks.support.plain_loop import PlainLoop
    from lab.engine.backends.backend import cores

    it = task(name, folder)
    loop = PlainLoop(it.settings)
    # With small models the synchronisation of torch's threads takes longer than a single thread.
    rates: dict[int, float] = {}
    for _ in _asked(pipe):
        if not rates:
            loop.client_rounds_per_s(it.loop_rounds)  # the first one is always slow
            for threads in (cores(), 1):
                torch.set_num_threads(threads)
                rates[threads] = loop.client_rounds_per_s(it.loop_rounds)
            torch.set_num_threads(max(rates, key=rates.__getitem__))
        pipe.send(loop.client_rounds_per_s(it.loop_rounds))


def _one_thread(pipe: Connection, name: str, folder: Path) -> None:
    import torch

    from benchmarks.support.one_thread import mlp_vs_bmm, radon_vs_direct

    torch.set_num_threads(1)
    measure = radon_vs_direct if name == RADON else mlp_vs_bmm
    for _ in _asked(pipe):
        pipe.send(measure(folder, turns=5))


def _asked(pipe: Connection) -> Iterator[None]:
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        yield


def _on_ray(name: str, folder: Path) -> float:
    from benchmarks.support.engine_tasks import task
    from lab.flower.simulate import simulate
    from operation.runs.event_file import FILE_NAME, EventFile

    settings = task(name, folder / "data").on_ray()
    simulate(settings, run_dir=folder / "run")
    events = EventFile(folder / "run" / FILE_NAME).new_events()
    legs = [event for event in events if event["event"] == "leg"]
    return max(float(leg["answered"] / leg["seconds"]) for leg in legs)


def _short(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
