"""The coordinator's memory while 100 envelopes of 45 MB are handed over, and its database's growth.

SuperLink, proxy and ServerApp are real. The hospitals are stand-ins in one process
(stand_in_fleet.py), because a hundred do not fit on one machine. Every hospital seals a model
(leg 1) and receives another one (leg 2).

`peak_bytes` is the peak memory of the SuperLink and its child processes, SuperExec and ServerApp
included, from the first leg's plan to the last envelope's delivery. It is the sum of the
proportional set sizes, including file pages, sampled five times a second. `start_peak_bytes` is the
peak before, when the process that creates the first model has PyTorch loaded; that process ends
then, or stays for a study with test data. Afterwards a small study runs a hundred legs, and the
size of the database is measured after the 10th and the 100th.

    python -m benchmarks.memory [--envelopes 100] [--json]
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from client_app.enrol.transport_key import new_transport_key
from learning.trainer import Network, TaskSpec
from protocol.model_size import model_size
from protocol.sealing import envelope
from protocol.sealing.keys import Identity
from protocol.secure_sum.total import LastAggregate
from protocol.study.card import Card
from server_app.experiment.experiment_folder import parse
from server_app.services import background
from server_app.services.supervisor import PARTS
from server_app.study import study_members
from server_app.study.creation import create_study
from server_app.study.registration import control, register_members
from server_app.study.study_folder import Study

from .support.processes import FEDDC, Processes, free_port, wait_for

_SECONDS_PER_ENVELOPE = 60.0
_START_SECONDS, _LEGS_SECONDS = 1800.0, 1200.0
_SAMPLE_SECONDS = 0.2
EARLY_LEG, LATE_LEG = 10, 100
# Own first models: the coordinator sends no models before there are envelopes.
COMMON: dict[str, Any] = {
    "classes": 2,
    "init": "own",
    "daisy-period": 1,
    "aggregation-period": 0,
    "permutation": "derangement",
    "leg-timeout": 36_000.0,
    "start-timeout": 1800.0,
}
LARGE: dict[str, Any] = {"model": "resnet18", "input-shape": "3x32x32", "rounds": 2}
SMALL: dict[str, Any] = {"model": "mlp", "input-shape": "10", "rounds": LATE_LEG + 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--envelopes", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    size = envelope_bytes(LARGE)
    start, peak = hand_over(arguments.envelopes, size)
    sys.stderr.write(f"peak over the hand-over: {peak / 1e6:.0f} MB; now the database\n")
    result = {
        "peak_bytes": peak,
        "start_peak_bytes": start,
        "envelopes": arguments.envelopes,
        "envelope_bytes": size,
        "measured": "proportional set sizes of SuperLink, SuperExec and ServerApp together",
        **database_growth(),
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(f"{arguments.envelopes} envelopes of {size / 1e6:.0f} MB were handed over")
        print(f"peak of SuperLink and ServerApp: {result['peak_bytes'] / 1e6:.0f} MB")
        print(f"database after {EARLY_LEG} and {LATE_LEG} legs: {result['database_growth']:.2f}×")


def envelope_bytes(settings: dict[str, Any]) -> int:
    """Return the length of a sealed model: the coordinator refuses all others."""
    parsed, task = parse(COMMON | settings, hospitals=3)
    network = Network(parsed.training, TaskSpec(task.shape, task.classes), seed=0)
    layouts = network.parameter_layout, network.buffer_layout
    model = model_size(*layouts, {}, wire=parsed.training.wire_dtype).total
    return model + envelope.OVERHEAD + LastAggregate.BYTES


def hand_over(envelopes: int, size: int) -> tuple[int, int]:
    """Return the peaks before and during a hand-over of this many envelopes."""
    with _running(LARGE, hospitals=envelopes, size=size) as (study, delivered):
        superlink = background.running(study)["superlink"]
        with _Watch(superlink) as start:
            # The plan is on disk before the first request is sent.
            wait_for(
                lambda: _is_running(study) and _has_planned(study),
                "the first plan",
                _START_SECONDS,
            )
        with _Watch(superlink) as watch:
            wait_for(
                lambda: _is_running(study) and _delivered(delivered) == envelopes,
                "all envelopes delivered",
                _START_SECONDS + envelopes * _SECONDS_PER_ENVELOPE,
            )
        return start.peak, watch.peak


def database_growth() -> dict[str, float]:
    """Return the size of the database after a few and after many small legs, and the ratio."""
    with _running(SMALL, hospitals=3, size=envelope_bytes(SMALL)) as (study, _):
        sizes = []
        for leg in (EARLY_LEG, LATE_LEG):
            wait_for(
                lambda leg=leg: _is_running(study) and _legs(study) >= leg,  # type: ignore[misc]
                f"leg {leg}",
                _LEGS_SECONDS,
            )
            sizes.append(sum(f.stat().st_size for f in study.superlink.glob("state.db*")))
    return {
        f"database_bytes_after_{EARLY_LEG}_legs": sizes[0],
        f"database_bytes_after_{LATE_LEG}_legs": sizes[1],
        "database_growth": round(sizes[1] / sizes[0], 3),
    }


@contextmanager
def _running(
    settings: dict[str, Any], *, hospitals: int, size: int
) -> Iterator[tuple[Study, Path]]:
    """Run an experiment with stand-ins; yield the study and the file that counts deliveries."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="fdc-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        processes = stack.enter_context(Processes(folder))
        study = _create_study(folder, settings, hospitals)
        stack.callback(background.stop, study)
        background.start(study, PARTS)
        register_members(study)
        delivered = folder / "delivered"
        arguments = [study.address, study.authority, folder / "keys", size, delivered]
        fleet = [sys.executable, "-m", "benchmarks.support.stand_in_fleet"]
        processes.start("fleet", [*fleet, *arguments])
        api = control(study)
        wait_for(
            lambda: sum(node.is_online for node in api.nodes()) == hospitals,
            "stand-ins",
            _START_SECONDS,
        )
        processes.start("run", [*FEDDC, "coordinator", "run", "--study", study.folder])
        yield study, delivered


def _create_study(folder: Path, settings: dict[str, Any], hospitals: int) -> Study:
    port = free_port()
    study = create_study(
        folder / "study",
        name="benchmark",
        address=f"localhost:{port}",
        listen=f"127.0.0.1:{port}",
        internal_port=free_port(2),  # the next one is the long-poll server's
    )
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in (COMMON | settings).items()]
    study.settings_file.write_text("".join(lines))
    (folder / "keys").mkdir(mode=0o700)
    for number in range(hospitals):
        name = f"hospital-{number:03}"
        private, public = new_transport_key()
        identity = Identity.generate()
        (folder / "keys" / f"{name}.key").write_bytes(private)
        (folder / "keys" / f"{name}.identity").write_bytes(identity.to_bytes())
        study_members.add(study, Card.make(name, identity, public))
    study_members.write_roster(study)
    return study


def _has_planned(study: Study) -> bool:
    states = [json.loads(f.read_text()) for f in study.experiments.glob("*/journal/state.json")]
    return any(state.get("planned_cohort") is not None for state in states)


def _is_running(study: Study) -> bool:
    """Return True; raise RuntimeError if the experiment has failed."""
    if found := re.search(r'"event": "end".*"status": "failed".*', _events(study)):
        raise RuntimeError(f"the experiment failed: {found[0]}")
    return True


def _delivered(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _legs(study: Study) -> int:
    return _events(study).count('"event": "leg"')


def _events(study: Study) -> str:
    return "".join(file.read_text() for file in study.experiments.glob("*/metrics.jsonl"))


class _Watch:
    """Samples the memory of a process and its descendants until the block ends."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self.peak = max(self.peak, sum(map(_set_size, _family(self._pid))))


def _family(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))


def _set_size(pid: int) -> int:
    """Return the proportional set size of a process: shared pages count in part."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, *rest = line.split()
            if name == "Pss:":
                return 1024 * int(rest[0])
    return 0


if __name__ == "__main__":
    main()
