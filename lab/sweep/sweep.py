"""Train all trials of a plan that have no record yet."""

from collections.abc import Callable, Mapping
from typing import Protocol

from lab.engine.backends.backend import cores as usable_cores
from lab.sweep.folder import RunFolder
from lab.sweep.plan import SweepPlan
from lab.sweep.pool import train_all
from lab.sweep.ray_pool import RayPool
from lab.sweep.record import Record
from lab.sweep.trial import Trial


class Stopped(Exception):
    """The user stopped the sweep; finished trials are saved."""


class Watcher(Protocol):
    """Receives the progress of a sweep."""

    def planned(self, plan: SweepPlan, trials: int, client_rounds: int) -> None:
        """Called with the remaining work of a plan, as far as it is known."""

    def progress(self, trial: Trial, client_rounds: int) -> None:
        """Called with the client-rounds a trial has done."""

    def done(self, trial: Trial, record: Record) -> None:
        """Called when a trial is finished."""


def sweep(
    plan: SweepPlan,
    folder: RunFolder,
    *,
    watcher: Watcher,
    stop: Callable[[], bool],
    workers: int | None = None,
    cluster: RayPool | None = None,
) -> dict[str, Record]:
    """Train the missing trials, first the candidates for learning rates; return all records.

    They are trained by `workers` processes here, or on a Ray `cluster`.
    """
    records = folder.records()
    cores = usable_cores()
    for stage in (plan.candidates, lambda: plan.finals(records)):
        missing = [trial for trial in _once(stage()) if trial.key not in records]
        watcher.planned(plan, *left(plan, records))
        pairs = [(trial, folder.checkpoint(trial.key)) for trial in missing]
        if cluster is not None:
            finished = cluster.train_all(pairs, on_progress=watcher.progress, stop=stop)
        else:
            processes, each = divided(cores, len(missing), workers)
            finished = train_all(
                pairs,
                workers=processes,
                cores=each,
                on_progress=watcher.progress,
                stop=stop,
            )
        for trial, record in finished:
            folder.keep(trial.key, record)
            folder.note_time()
            records[trial.key] = record
            watcher.done(trial, record)
        if any(trial.key not in records for trial in missing):
            raise Stopped
    return records


def divided(cores: int, trainings: int, workers: int | None = None) -> tuple[int, int]:
    """Return how many processes train at a time, and how many cores each of them may use.

    Processes come first: they share nothing, while the threads of one training wait for each other.
    """
    processes = max(1, min(workers or cores, trainings))
    return processes, max(1, cores // processes)


def left(plan: SweepPlan, records: Mapping[str, Record]) -> tuple[int, int]:
    """Return the number of missing trials and client-rounds.

    Where a learning rate is not chosen yet, the first one stands for it.
    """
    trials = {trial.key: trial for trial in plan.candidates()}
    for seed, cell in [(seed, cell) for seed in plan.seeds for cell in plan.cells]:
        rate = plan.rate_of(cell, seed, records)
        trial = plan.final(cell, seed, plan.rates(cell)[0] if rate is None else rate)
        trials[trial.key] = trial
    missing = [trial for key, trial in trials.items() if key not in records]
    return len(missing), sum(trial.client_rounds for trial in missing)


def _once(trials: list[Trial]) -> list[Trial]:
    return list({trial.key: trial for trial in trials}.values())
