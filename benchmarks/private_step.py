"""A private round of local training against a plain one, on the same batch and in the same process.

`vs_plain` is the median over turns of private_step's time divided by local_step's: gradients of
every patient, clipping, noise from AES, rounding and the optimiser's step against one gradient and
the optimiser's step. Time is the processor's, on one thread. The two take turns, so that a busy
moment of the machine affects both. Freed memory stays in the process, as in the lab's engine: each
step allocates megabytes, and without it the private step takes half as long again.

    python -m benchmarks.private_step [--models mnist-cnn] [--batch 8] [--turns 30] [--json]
"""

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from lab.engine.backends.memory import keep_freed_memory
from learning.data import Examples
from learning.privacy import NoiseSource, PatientGradients, Patients, private_step
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec, local_step, optimizer_spec

# The shapes of the data sets that the paper trains these networks on.
MODELS = {"mnist-cnn": (1, 28, 28), "resnet-small": (3, 32, 32)}
_OPTIONS = {"resnet-small": '{"norm": "group"}'}
_WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--batch", type=int, default=8, help="patients, with one image each")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as a hospital's trainer
    keep_freed_memory()
    result = {
        model: compared(model, arguments.batch, arguments.turns) for model in arguments.models
    }
    if arguments.json:
        print(json.dumps(result))
        return
    for model, row in result.items():
        print(f"{model}: " + ", ".join(f"{key} {value}" for key, value in row.items()))


def compared(model: str, batch: int, turns: int) -> dict[str, float]:
    """Measure both steps in turns."""
    plain, private = _plain(model, batch), _private(model, batch)
    times = [(_seconds(plain), _seconds(private)) for _ in range(_WARM_UP + turns)][_WARM_UP:]
    return {
        "vs_plain": round(median(one / other for other, one in times), 2),
        "vs_plain_at_best": round(min(t[1] for t in times) / min(t[0] for t in times), 2),
        "plain_ms": round(1000 * median(t[0] for t in times), 2),
        "private_ms": round(1000 * median(t[1] for t in times), 2),
    }


def _plain(model: str, batch: int) -> Callable[[], object]:
    network, examples = _network(model, batch, private=False)
    spec, tensors = optimizer_spec(network.settings), network.tensors(examples)
    return lambda: local_step(network, spec, 0, tensors, {}, None)


def _private(model: str, batch: int) -> Callable[[], object]:
    network, examples = _network(model, batch, private=True)
    gradients, patients = PatientGradients(network), Patients.of(network, examples)
    spec, noise = optimizer_spec(network.settings), NoiseSource()
    rounds = iter(range(10**9))

    def step() -> object:
        stream = noise.stream("round", next(rounds))
        return private_step(gradients, spec, 0, patients, {}, noise=stream)

    return step


def _network(model: str, batch: int, *, private: bool) -> tuple[Network, Examples]:
    shape = MODELS[model]
    values = {"model": model, "model-options": _OPTIONS.get(model, "{}"), "learning-rate": 1e-3}
    if private:
        values |= {"privacy-unit": "patient", "noise-multiplier": 8.0, "nominal-patients": batch}
    settings = TrainingSettings.parse(values, source="benchmark")
    rng = np.random.default_rng(0)
    images = rng.random((batch, *shape), dtype=np.float32)
    return Network(settings, TaskSpec(shape, 10), seed=0), Examples(
        images, rng.integers(0, 10, batch)
    )


def _seconds(step: Callable[[], object]) -> float:
    # Of this process: other processes' turns on the core are not counted.
    began = time.process_time()
    step()
    return time.process_time() - began


if __name__ == "__main__":
    main()
