"""Builds the network and the aggregator that the settings name, before anything starts."""

from learning.privacy import PrivacyError, check_settings, refuse_mixed_patients
from learning.trainer import Network, TaskSpec
from operation.config import SettingsError
from protocol.randomness import SEED_BYTES
from strategies.wrapped.requirements import check_wrapped

from .aggregators import build_aggregator, cohort_size
from .run_config import Settings


def check_network_and_aggregator(
    settings: Settings, task: TaskSpec, *, device: str = "cpu"
) -> Network:
    """Return the network; SettingsError if the aggregator cannot aggregate its models."""
    algorithm = settings.algorithm
    network = Network(settings.training, task, seed=0, device=device)
    try:
        check_settings(settings.training)
        if settings.training.privacy_unit != "none":
            refuse_mixed_patients(network.module, settings.training.model)
    except PrivacyError as error:
        raise SettingsError(str(error)) from error
    try:
        check_wrapped(
            build_aggregator(settings, route_seed=bytes(SEED_BYTES)),
            parameters=sum(tensor.numel() for tensor in network.parameters.values()),
            cohort=cohort_size(settings),
            chained=algorithm.daisy_period > 0 or algorithm.fraction < 1,
        )
    except ValueError as error:
        raise SettingsError(f"aggregator = {algorithm.aggregator}: {error}") from error
    return network
