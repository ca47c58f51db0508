"""Train trials on a Ray cluster: the same records as from the local pool, on more machines."""

import logging
import platform
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.experiments import ExperimentError
from lab.sweep.plan import Request, SweepPlan
from lab.sweep.pool import OnProgress, SweepFailed
from lab.sweep.ready import data_digest
from lab.sweep.record import Record
from lab.sweep.train_trial import train
from lab.sweep.trial import Trial
from protocol import __version__
from protocol.address import Address

_POLL = 0.5
_CONNECT_SECONDS = 10.0


class RayPool:
    """A connection to a running cluster.

    A training whose node dies is run again on another one, from its beginning: checkpoints are
    local files, so trainings on Ray have none.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def check(self, plan: SweepPlan) -> None:
        """Raise an error that names a node with other data or versions than this machine."""
        import torch

        ours = (plan.request.data, torch.__version__, __version__, platform.python_version())
        asked = {
            node["NodeManagerHostname"] + " " + node["NodeID"][:8]: self._remote(
                _look, node
            ).remote(plan.request.to_json())
            for node in self._ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        }
        if not asked:
            raise ExperimentError("the Ray cluster has no node with a CPU: start one")
        for name, answer in asked.items():
            try:
                theirs = self._ray.get(answer)
            except Exception as error:
                reason = " ".join(str(error).split())[-300:]
                raise ExperimentError(f"Ray node {name} can't read the data: {reason}") from error
            for what, mine, other in zip(
                ("data", "PyTorch", "feddc", "Python"), ours, theirs, strict=True
            ):
                if mine != other:
                    raise ExperimentError(
                        f"Ray node {name} has other {what} ({other}) than this machine ({mine}): "
                        "install the same there, and set its FEDDC_DATA"
                    )

    def train_all(
        self,
        trials: list[tuple[Trial, Path]],
        *,
        on_progress: OnProgress,
        stop: Callable[[], bool],
    ) -> Iterator[tuple[Trial, Record]]:
        """Train trials, as many at a time as the cluster has CPUs; yield each finished trial.

        When stopped, unfinished trainings are cancelled.
        """
        remote = self._remote(_train)
        pending = {remote.remote(trial): trial for trial, _ in trials}
        try:
            while pending and not stop():
                done, _ = self._ray.wait(list(pending), num_returns=1, timeout=_POLL)
                for reference in done:
                    trial = pending.pop(reference)
                    yield trial, self._record(trial, reference)
        finally:
            for reference in pending:
                self._ray.cancel(reference, force=True)

    def _record(self, trial: Trial, reference: Any) -> Record:
        try:
            values = self._ray.get(reference)
        except Exception as error:
            reason = " ".join(str(error).split())[-300:]
            raise SweepFailed(f"{trial}: {reason}", is_input=False) from error
        return Record.from_json(values)

    def _remote(self, function: Callable[..., Any], node: dict[str, Any] | None = None) -> Any:
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": -1}
        if node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                node["NodeID"], soft=False
            )
            options["max_retries"] = 0
        return self._ray.remote(**options)(function)


@contextmanager
def ray_pool(address: str) -> Iterator[RayPool]:
    """Connect to the cluster at `address` ("auto": the one that this machine belongs to)."""
    _check_reachable(address)
    import ray  # slow to import

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ExperimentError(
            f"no Ray cluster at {address} ({reason}): start one with `ray start --head`"
        ) from error
    try:
        yield RayPool(ray)
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise an error if nothing listens at an address: Ray itself would go on trying."""
    if address == "auto":
        return
    try:
        place = Address.parse(address)
        socket.create_connection((place.host, place.port), timeout=_CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ExperimentError(
            f"no Ray cluster at {address} ({error}): start one with `ray start --head`"
        ) from error


def _look(request: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return the digest of this node's data, and its versions."""
    import torch

    digest = data_digest(SweepPlan(Request.from_json(request)))
    return digest, torch.__version__, __version__, platform.python_version()


def _train(trial: Trial) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)  # as in the local pool
    record = train(trial)
    if record is None:
        raise RuntimeError("the training stopped before its end")
    return record.to_json()
