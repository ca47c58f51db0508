"""The strategies that FedDC can wrap, by their names in the settings."""

from collections.abc import Callable

from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

from strategies.aggregators.geometric_median import GeometricMedian
from strategies.aggregators.radon import RadonPoint
from strategies.routing import planner

from .method_settings import Aggregator
from .run_config import Settings

_ADAPTIVE_RATE, _MOMENTUM_RATE = 0.1, 1.0


def build_aggregator(settings: Settings, *, route_seed: bytes) -> Strategy:
    """Return the strategy that the settings name."""
    chosen = settings.algorithm
    adaptive = chosen.server_learning_rate or _ADAPTIVE_RATE
    momentum_rate = chosen.server_learning_rate or _MOMENTUM_RATE
    builders: dict[Aggregator, Callable[[], Strategy]] = {
        "fedavg": FedAvg,
        "fedavgm": lambda: FedAvgM(
            server_learning_rate=momentum_rate, server_momentum=chosen.server_momentum
        ),
        "fedprox": lambda: FedProx(proximal_mu=chosen.proximal_mu),
        "fedadam": lambda: FedAdam(eta=adaptive, beta_2=chosen.server_beta2),
        "fedyogi": lambda: FedYogi(eta=adaptive, beta_2=chosen.server_beta2),
        "fedadagrad": lambda: FedAdagrad(eta=adaptive),
        "median": FedMedian,
        "trimmed-mean": lambda: FedTrimmedAvg(beta=chosen.trim_fraction),
        "krum": lambda: Krum(num_malicious_nodes=chosen.krum_malicious),
        "multi-krum": lambda: MultiKrum(
            num_malicious_nodes=chosen.krum_malicious,
            # Of a leg's cohort, not of the study: else a small cohort would be selected whole.
            num_nodes_to_select=max(1, cohort_size(settings) - chosen.krum_malicious),
        ),
        "bulyan": lambda: Bulyan(num_malicious_nodes=chosen.krum_malicious),
        "qfedavg": lambda: QFedAvg(
            client_learning_rate=settings.training.learning_rate, q=chosen.qfedavg_q
        ),
        "radon": lambda: RadonPoint(iterations=chosen.radon_iterations, seed=route_seed),
        "geometric-median": GeometricMedian,
    }
    return builders[chosen.aggregator]()


def cohort_size(settings: Settings) -> int:
    """Return how many hospitals a leg draws; the last leg draws all."""
    return planner.cohort_size(settings.algorithm.hospitals, settings.algorithm.fraction)
