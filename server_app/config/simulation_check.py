"""What can be known to be wrong before anything starts: data, network, aggregator, results."""

from learning.data import DataError
from learning.local_data import load_dataset, load_partitions
from learning.trainer import Network, TaskSpec
from operation.config import SettingsError
from protocol.randomness import SEED_BYTES
from protocol.study.roster import RosterError
from protocol.study.simulated_study import simulated_study
from server_app.run.run_dir import new_run_dir
from strategies.wrapped.requirements import check_wrapped

from .aggregators import build_aggregator, cohort_size
from .run_config import Settings


def preflight(settings: Settings) -> None:
    """Load the data, build the network and the aggregator as the run will; nothing is started.

    Raises SettingsError, DataError or ModelError with one line that says what to change.
    """
    algorithm = settings.algorithm
    new_run_dir(settings)
    dataset = load_dataset(settings.local, algorithm.seed)
    shares = load_partitions(settings.local, algorithm.hospitals, algorithm.seed)
    for share in shares:
        if not len(share.train):
            raise DataError(f"{share.name} has no training examples: choose another split")
    try:
        simulated_study(algorithm.seed, [share.name for share in shares])
    except RosterError as error:
        raise DataError(f"the hospitals' names can't be on a roster: {error}") from error
    task = TaskSpec(dataset.shape, len(dataset.classes))
    network = Network(settings.training, task, seed=0, device=settings.local.device)
    try:
        check_wrapped(
            build_aggregator(settings, route_seed=bytes(SEED_BYTES)),
            parameters=sum(tensor.numel() for tensor in network.parameters.values()),
            cohort=cohort_size(settings),
            chained=algorithm.daisy_period > 0 or algorithm.fraction < 1,
        )
    except ValueError as error:
        raise SettingsError(f"aggregator = {algorithm.aggregator}: {error}") from error
