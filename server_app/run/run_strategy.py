"""Runs FedDC with the given settings, simulated or real, and records the results."""

from collections.abc import Callable
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from protocol.keys import Identity
from protocol.study.roster import Roster
from server_app.config.aggregators import build_aggregator
from server_app.config.run_config import Settings
from strategies.feddc import FedDC
from strategies.session.journal import Journal
from strategies.session.reply_notifier import ReplyNotifier
from strategies.wrapped.records import to_model

from .recorder import Recorder


def run_strategy(
    grid: Grid,
    settings: Settings,
    shape: tuple[int, ...],
    classes: int,
    recorder: Recorder,
    *,
    roster: Roster,
    coordinator: Identity,
    route_seed: bytes,
    training_seed: bytes,
    experiment: str | None = None,
    journal: Journal | None = None,
    newest_roster: Callable[[], Roster | None] = lambda: None,
    bell: ReplyNotifier | None = None,
) -> dict[str, Any]:
    """Run an experiment on a grid of hospitals; return its summary."""
    algorithm = settings.algorithm
    first = recorder.evaluator.first_model
    try:
        strategy = FedDC(
            build_aggregator(settings, route_seed=route_seed),
            roster=roster,
            coordinator=coordinator,
            daisy_period=algorithm.daisy_period or None,
            aggregation_period=algorithm.aggregation_period or None,
            permutation=algorithm.permutation,
            fraction=algorithm.fraction,
            weighting=algorithm.weighting,
            init=algorithm.init,
            buffers=first.buffers,
            ramp=algorithm.ramp,
            tail=algorithm.tail,
            random_schedule=algorithm.schedule == "random",
            quorum=algorithm.quorum,
            quorum_wait=algorithm.quorum_wait,
            sealed=algorithm.sealed,
            start_timeout=algorithm.start_timeout,
            route_seed=route_seed,
            training_seed=training_seed,
            experiment=experiment,
            journal=journal,
            newest_roster=newest_roster,
            bell=bell,
            observer=recorder,
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
    except BaseException as error:
        recorder.failed(f"{error}" or type(error).__name__)
        raise
