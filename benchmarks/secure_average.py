"""A secure average of ten ResNet18 (11.2 million parameters) against a plain one.

Runs the three trips in one process, with one drop-out. Times are processor times, which other
programs on the machine hardly affect.

    python -m benchmarks.secure_average [--hospitals 10] [--repetitions 5] [--deployed] [--json]

`--deployed` also runs a study of three hospitals with a tiny model, as real processes, and compares
an aggregation leg with a plain one.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.model_bytes import ModelState
from protocol.model_size import Layout, layout_of
from protocol.sealing.keys import Identity, SealingKey
from protocol.secure_sum.keystream import CHUNK_BYTES, Keystream, new_buffer
from protocol.secure_sum.member import MaskedVector, Member
from protocol.secure_sum.secure_leg import SecureLeg, threshold
from protocol.secure_sum.statements import Statement
from protocol.secure_sum.unmasking import unmask
from protocol.secure_sum.vector import Mean, VectorForm

from .support.processes import Processes
from .support.small_study import SmallStudy

TRIPS = 3
AGGREGATE = bytes(32)
Floats = dict[str, NDArray[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--hospitals", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--deployed", action="store_true", help="measure legs of a real study too")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    # In a fresh process, before anything else has used memory.
    model = resnet18_model()
    layouts = layout_of(model.parameters), layout_of(model.buffers)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak = pool.apply(peak_of_coordinator, (*layouts, 100))
    result = measure(model, arguments.hospitals, arguments.repetitions)
    result["peak_mb_100"] = peak
    if arguments.deployed:
        result |= deployed_legs()
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name}: {value:.4g}")


def resnet18_model() -> ModelState:
    from torchvision.models import resnet18  # here: the coordinator's process has no torch

    arrays = {name: t.numpy() for name, t in resnet18(weights=None).state_dict().items()}
    buffers = [name for name in arrays if name.rpartition(".")[2].startswith(("running", "num_"))]
    parameters = {name: array for name, array in arrays.items() if name not in buffers}
    return ModelState(parameters, {name: arrays[name] for name in buffers})


@dataclass
class Study:
    """A generation's members and a leg of all of them."""

    members: dict[str, Member]
    leg: SecureLeg

    @staticmethod
    def of(hospitals: int) -> "Study":
        names = [f"hospital-{number:04}" for number in range(hospitals)]
        identities = {name: Identity.generate() for name in names}
        sealing = {name: SealingKey.generate() for name in names}
        pair_keys: dict[str, dict[str, bytes]] = {name: {} for name in names}
        for one, two in itertools.combinations(names, 2):
            pair_keys[one][two] = pair_keys[two][one] = os.urandom(32)
        member_key, generation = os.urandom(32), os.urandom(32)
        public = {name: key.public for name, key in sealing.items()}
        known = {name: identity.public for name, identity in identities.items()}
        members = {
            name: Member(
                name, identities[name], sealing[name], member_key, pair_keys[name], public, known
            )
            for name in names
        }
        leg = SecureLeg("benchmark", generation, 1, tuple(names), threshold(hospitals))
        return Study(members, leg)


def measure(model: ModelState, hospitals: int, repetitions: int) -> dict[str, float]:
    study = Study.of(hospitals)
    form = form_of(model, hospitals)
    models = [model, *(_changed(model, seed) for seed in range(1, hospitals))]
    plain_bytes = len(model.to_bytes())

    name, member = next(iter(study.members.items()))
    mask_seconds = _median(
        lambda: member.mask(study.leg, form.encode(model), aggregate=AGGREGATE), repetitions
    )
    # As many bytes as the hospital encrypts: its own mask, one per other hospital, and the tag's.
    aes_seconds = _median(lambda: _aes((hospitals + 1) * form.length), repetitions)

    # One drop-out in trip 1.
    senders = list(study.members)[:-1]
    total, masked, up = form.zeros(), {}, {}
    for sender, own in zip(senders, models, strict=False):
        made = study.members[sender].mask(study.leg, form.encode(own), aggregate=AGGREGATE)
        total.add(made.vector)
        up[sender] = _bytes_up(made)
        masked[sender] = replace(made, vector=form_of(ModelState({}), hospitals).zeros())
    statements = {sender: made.statement for sender, made in masked.items()}
    revealed, small = _later_trips(study, masked, statements)
    payloads = [own.to_bytes() for own in models[: len(senders)]]
    mean_seconds = _median(lambda: plain_mean(payloads), repetitions)

    def unmasked_mean() -> Mean:
        copy = total.copy()
        unmask(copy, study.leg, statements, revealed)
        return form.decode(copy, len(senders))

    unmask_seconds = _median(unmasked_mean, repetitions)
    expected = exact_mean(models[: len(senders)])
    # Down: the sum, as a request carries it. Up: vector, statement and shares. Then small messages.
    secure_bytes = form.length + up[name] + small[name]
    return {
        "trips": TRIPS,
        "bytes_vs_plain": secure_bytes / (2 * plain_bytes),
        "mask_vs_aes": mask_seconds / aes_seconds,
        "unmask_vs_mean": unmask_seconds / mean_seconds,
        "max_relative_error": _error(unmasked_mean().model.parameters, expected),
        "mask_seconds": mask_seconds,
        "aes_seconds": aes_seconds,
        "unmask_seconds": unmask_seconds,
        "mean_seconds": mean_seconds,
        "shares_bytes": sum(map(len, masked[name].shares.values())),
        "plain_mb": plain_bytes / 1e6,
        "hospitals": hospitals,
        "dropped": 1,
        "repetitions": repetitions,
    }


def deployed_legs(turns: int = 2, legs: int = 8) -> dict[str, float]:
    """Return the median seconds of secure and plain aggregation legs, which take turns."""
    seconds: dict[str, list[float]] = {"secure": [], "plain": []}
    with ExitStack() as stack:
        # Short, because the path of a socket is limited to 107 bytes.
        folder = Path(tempfile.mkdtemp(prefix="fdc-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        processes = stack.enter_context(Processes(folder))
        study = stack.enter_context(closing(SmallStudy(folder, processes, hospitals=3)))
        for _ in range(turns):
            for averaging, taken in seconds.items():
                taken += study.legs(legs, daisy_period=0, aggregation_period=1, averaging=averaging)
    secure, plain = (statistics.median(seconds[name]) for name in ("secure", "plain"))
    return {"leg_vs_plain": secure / plain, "leg_seconds": secure, "plain_leg_seconds": plain}


def form_of(model: ModelState, hospitals: int) -> VectorForm:
    return VectorForm(layout_of(model.parameters), layout_of(model.buffers), members=hospitals)


def plain_mean(payloads: list[bytes]) -> Floats:
    """The mean as a plain aggregation takes it: read model by model, averaged in float64."""
    sums: Floats = {}
    for payload in payloads:
        for name, array in ModelState.from_bytes(payload).parameters.items():
            scaled = array.astype(np.float64) / len(payloads)
            sums[name] = np.asarray(sums[name] + scaled if name in sums else scaled)
    return {name: total.astype(np.float32) for name, total in sums.items()}


def exact_mean(models: list[ModelState]) -> Floats:
    """The mean in float64."""
    return {
        name: np.asarray(sum(m.parameters[name].astype(np.float64) for m in models) / len(models))
        for name in models[0].parameters
    }


def peak_of_coordinator(parameters: Layout, buffers: Layout, hospitals: int) -> float:
    """Return the peak memory, in MB, of adding and unmasking so many vectors, two dropped."""
    form = VectorForm(parameters, buffers, members=hospitals)
    study = Study.of(hospitals)
    senders = list(study.members)[:-2]
    # Small vectors give the statements and shares; the large vectors only have the right size.
    tiny = VectorForm({}, {}, members=hospitals)
    masked = {
        name: study.members[name].mask(study.leg, tiny.encode(ModelState({})), aggregate=AGGREGATE)
        for name in senders
    }
    statements = {name: made.statement for name, made in masked.items()}
    revealed, _ = _later_trips(study, masked, statements)
    total, arriving = form.zeros(), os.urandom(form.length)
    for _ in senders:
        total.add(form.from_bytes(bytes(bytearray(arriving))))  # each in memory of its own
    unmask(total, study.leg, statements, revealed)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _later_trips(
    study: Study, masked: dict[str, MaskedVector], statements: dict[str, Statement]
) -> tuple[dict[str, bytes], dict[str, int]]:
    """Run trips 2 and 3; return what is revealed, and the bytes of each member's messages."""
    leg = study.leg
    signatures = {
        name: study.members[name].sign_survivors(
            leg, statements, own=statements[name], aggregate=AGGREGATE
        )
        for name in masked
    }
    revealed, sizes = {}, {}
    for name in masked:
        shares = {sender: made.shares[name] for sender, made in masked.items()}
        revealed[name] = study.members[name].reveal(leg, statements, signatures, shares)
        down = [s.to_bytes() for s in statements.values()] + [*signatures.values()]
        parts = [*down, *shares.values(), signatures[name], revealed[name]]
        sizes[name] = sum(map(len, parts))
    return revealed, sizes


def _bytes_up(made: MaskedVector) -> int:
    parts = [made.statement.to_bytes(), *made.shares.values()]
    return made.vector.numbers.nbytes + made.vector.extras.nbytes + sum(map(len, parts))


def _aes(size: int) -> None:
    stream, buffer = Keystream(os.urandom(32)), new_buffer()
    for _ in range(size // CHUNK_BYTES):
        stream.fill(buffer, CHUNK_BYTES)
    stream.fill(buffer, size % CHUNK_BYTES)


def _changed(model: ModelState, seed: int) -> ModelState:
    rng = np.random.default_rng(seed)
    parameters: Floats = {
        name: (array.astype(np.float32) + 0.01 * rng.standard_normal(array.shape, dtype=np.float32))
        for name, array in model.parameters.items()
    }
    return ModelState(parameters, model.buffers)


def _error(found: Floats, expected: Floats) -> float:
    squares = [
        (
            float(np.square(found[n].astype(np.float64) - expected[n]).sum()),
            float(np.square(expected[n].astype(np.float64)).sum()),
        )
        for n in expected
    ]
    return math.sqrt(sum(a for a, _ in squares) / sum(b for _, b in squares))


def _median(step: Callable[[], object], repetitions: int) -> float:
    step()  # a warm-up
    taken = []
    for _ in range(repetitions):
        started = time.process_time()
        step()
        taken.append(time.process_time() - started)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
