"""Check of a simulation before it starts: data, network, aggregator and results folder."""

from learning.data import DataError
from learning.local_data import load_dataset, load_partitions
from learning.trainer import TaskSpec
from protocol.study.roster import RosterError
from protocol.study.simulated_study import simulated_study
from server_app.run.run_dir import new_run_dir

from .network_check import check_network_and_aggregator
from .run_config import Settings


def preflight(settings: Settings) -> None:
    """Load the data and build the network and the aggregator as the run will.

    SettingsError, DataError and ModelError say in one line what to change.
    """
    algorithm = settings.algorithm
    new_run_dir(settings)
    dataset = load_dataset(settings.local, algorithm.seed)
    partitions = load_partitions(settings.local, algorithm.hospitals, algorithm.seed)
    for partition in partitions:
        if not len(partition.train):
            raise DataError(f"{partition.name} has no training examples: choose another split")
    try:
        simulated_study(algorithm.seed, [partition.name for partition in partitions])
    except RosterError as error:
        raise DataError(f"the hospitals' names cannot be on a roster: {error}") from error
    task = TaskSpec(dataset.shape, len(dataset.classes))
    check_network_and_aggregator(settings, task, device=settings.local.device)
