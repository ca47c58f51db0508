"""Runs FedDC with the given settings, simulated or real, and records the results."""

from dataclasses import replace
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from operation.disk_space import DiskFull, is_full
from server_app.config.aggregators import build_aggregator
from server_app.config.run_config import Settings
from strategies.feddc import FedDC
from strategies.session.sealed_study import SealedStudy
from strategies.wrapped.array_records import to_model

from .recorder import Recorder


def run_strategy(
    grid: Grid,
    settings: Settings,
    shape: tuple[int, ...],
    classes: int,
    recorder: Recorder,
    study: SealedStudy,
) -> dict[str, Any]:
    """Run an experiment on a grid of hospitals; return its summary.

    `study` says who takes part; how long to wait and whether to seal is in the settings.
    """
    algorithm = settings.algorithm
    first = recorder.evaluator.first_model
    try:
        strategy = FedDC(
            build_aggregator(settings, route_seed=study.route_seed),
            study=replace(
                study,
                quorum=algorithm.quorum,
                quorum_wait=algorithm.quorum_wait,
                start_timeout=algorithm.start_timeout,
                approval_wait=algorithm.approval_wait,
                sealed=algorithm.sealed,
                averaging=study.averaging if algorithm.averaging == "auto" else algorithm.averaging,
                minimum_cohort=algorithm.minimum_cohort,
                observer=recorder,
            ),
            daisy_period=algorithm.daisy_period or None,
            aggregation_period=algorithm.aggregation_period or None,
            permutation=algorithm.permutation,
            fraction=algorithm.fraction,
            weighting=algorithm.weighting,
            init=algorithm.init,
            buffers=first.buffers,
            random_schedule=algorithm.schedule == "random",
        )
        config = ConfigRecord(dict(settings.training.as_config()))
        config["shape"], config["classes"] = list(shape), classes
        arrays = first.parameters | first.buffers
        result = strategy.start(
            grid,
            ArrayRecord({name: Array(array) for name, array in arrays.items()}),
            num_rounds=algorithm.rounds,
            timeout=algorithm.leg_timeout,
            train_config=config,
        )
        return recorder.completed(to_model(result.arrays, first.buffers))
    except Exception as error:
        recorder.failed(_reason(error))
        raise
    except BaseException:  # a signal: `stop`, `down`, or the machine shuts down
        recorder.interrupted()
        raise


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and is_full(error):
        what = str(error) if isinstance(error, DiskFull) else "the disk is full"
        return f"{what}: free some space, then run `feddc coordinator resume`"
    return f"{error}" or type(error).__name__
