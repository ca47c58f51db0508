"""The ServerApp: settings in, federated daisy-chaining, results out."""

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from learning.local_data import load_dataset, load_shares
from protocol.randomness import derive_seed, shared_init_seed
from protocol.simulated_study import simulated_study
from strategies.feddc import FedDC

from .aggregators import build_aggregator
from .evaluation import Evaluator
from .results import Recorder
from .run_dir import new_run_dir
from .settings import Settings

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one experiment as the run configuration says."""
    settings = Settings.from_run_config(dict(context.run_config), source="run config")
    run(grid, settings)


def run(grid: Grid, settings: Settings) -> dict[str, Any]:
    """Run one experiment on a grid of simulated hospitals; record it and return its summary."""
    algorithm = settings.algorithm
    run_dir = new_run_dir(settings)
    # Two secrets, each derived one way: neither tells anything about the other.
    route_seed = derive_seed(algorithm.seed, "route")
    training_seed = derive_seed(algorithm.seed, "training")
    dataset = load_dataset(settings.local, algorithm.seed)
    shares = load_shares(settings.local, algorithm.hospitals, algorithm.seed)
    study = simulated_study(algorithm.seed, [share.name for share in shares])
    evaluator = Evaluator(settings.training, dataset, seed=shared_init_seed(training_seed))
    recorder = Recorder(run_dir, settings, evaluator)
    try:
        first = evaluator.first_model
        strategy = FedDC(
            build_aggregator(settings, route_seed=route_seed),
            roster=study.roster,
            coordinator=study.coordinator,
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
            sealed=algorithm.sealing,
            start_timeout=algorithm.start_timeout,
            route_seed=route_seed,
            training_seed=training_seed,
            observer=recorder,
        )
        config = ConfigRecord(dict(settings.training.as_config()))
        config["shape"] = list(dataset.shape)
        config["classes"] = len(dataset.classes)
        arrays = first.parameters | first.buffers
        strategy.start(
            grid,
            ArrayRecord({name: Array(array) for name, array in arrays.items()}),
            num_rounds=algorithm.rounds,
            timeout=algorithm.leg_timeout,
            train_config=config,
        )
        return recorder.completed()
    except BaseException as error:
        recorder.failed(f"{error}" or type(error).__name__)
        raise
