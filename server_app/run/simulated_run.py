"""An experiment with simulated hospitals, as run by the ServerApp."""

from typing import Any

from flwr.serverapp import Grid

from learning.local_data import load_dataset, load_partitions
from learning.trainer import TaskSpec
from protocol.randomness import derive_seed, shared_init_seed
from protocol.study.simulated_study import simulated_study
from server_app.config.noise_target import scheduled_epsilon, with_noise
from server_app.config.run_config import Settings
from strategies.session.sealed_study import SealedStudy

from .evaluator import Evaluator
from .recorder import Recorder
from .run_dir import new_run_dir
from .run_strategy import run_strategy


def run(grid: Grid, settings: Settings) -> dict[str, Any]:
    """Run one experiment on a grid of simulated hospitals; record it and return its summary."""
    settings = with_noise(settings)
    algorithm = settings.algorithm
    run_dir = new_run_dir(settings)
    # Two secrets, each derived one way: neither reveals the other.
    route_seed = derive_seed(algorithm.seed, "route")
    training_seed = derive_seed(algorithm.seed, "training")
    dataset = load_dataset(settings.local, algorithm.seed)
    partitions = load_partitions(settings.local, algorithm.hospitals, algorithm.seed)
    study = simulated_study(algorithm.seed, [partition.name for partition in partitions])
    task = TaskSpec(dataset.shape, len(dataset.classes))
    seed = shared_init_seed(training_seed)
    evaluator = Evaluator(settings.training, task, dataset.test, seed=seed)
    return run_strategy(
        grid,
        settings,
        task.shape,
        task.classes,
        Recorder(
            run_dir,
            settings,
            evaluator,
            epsilon=scheduled_epsilon(settings, route_seed),
            held_out_examples={part.name: len(part.held_out) for part in partitions},
        ),
        SealedStudy(
            study.roster,
            study.coordinator,
            route_seed=route_seed,
            training_seed=training_seed,
            first_model_from_seed=True,
        ),
    )
