"""What a strategy needs to be wrapped: checked before anything is sent."""

from flwr.serverapp.strategy import Bulyan, MultiKrum, QFedAvg, Strategy

from strategies.aggregators.radon import RadonPoint, radon_number

_MINIMA = ("min_train_nodes", "min_available_nodes")


def check_wrapped(strategy: Strategy, *, parameters: int, cohort: int, chained: bool) -> None:
    """Refuse, before anything is sent, a strategy that could not aggregate a cohort of this size.

    `parameters` counts the model's trainable numbers; `chained` says whether models are handed on.
    """
    strategy = layers(strategy)[-1]
    name = type(strategy).__name__
    fraction = getattr(strategy, "fraction_train", 1.0)
    if fraction != 1.0:
        raise ValueError(
            f"{name} has fraction_train={fraction}: subsampling is FedDC's, "
            "set fraction_train=1.0 and FedDC(fraction=…) instead"
        )
    for attribute in _MINIMA:
        wanted = getattr(strategy, attribute, 0)
        if wanted > cohort:
            raise ValueError(
                f"{name} has {attribute}={wanted}, but a leg has {cohort} hospitals: "
                "it would wait for ever"
            )
    if isinstance(strategy, QFedAvg) and chained:
        raise ValueError(
            "QFedAvg weighs a hospital by its own loss, but a model that was handed on belongs to "
            "no one hospital: use daisy_period=None and fraction=1 with it"
        )
    if cohort < (needed := _least_to_withstand(strategy)):
        raise ValueError(
            f"{name} withstands {getattr(strategy, 'num_malicious_nodes', 0)} malicious hospitals "
            f"only among {needed} or more; a leg has {cohort}"
        )
    if isinstance(strategy, RadonPoint):
        strategy.check(parameters=parameters, hospitals=cohort)


def least_hospitals(strategy: Strategy) -> int:
    """Return how many hospitals a leg needs: with fewer, Flower's strategies would wait forever."""
    inner = layers(strategy)[-1]
    return max(1, *(int(getattr(inner, attribute, 0)) for attribute in _MINIMA))


def least_models(strategy: Strategy, parameters: int) -> int:
    """Return how many models an aggregation must have for the strategy to keep its promise."""
    inner = layers(strategy)[-1]
    least = max(least_hospitals(inner), _least_to_withstand(inner))
    if isinstance(inner, RadonPoint):
        least = max(least, radon_number(parameters), inner.minimum or 0)
    return least


def _least_to_withstand(strategy: Strategy) -> int:
    malicious = int(getattr(strategy, "num_malicious_nodes", 0))
    if isinstance(strategy, Bulyan):
        return 4 * malicious + 3
    return 2 * malicious + 3 if isinstance(strategy, MultiKrum) else 1


def layers(strategy: Strategy) -> list[Strategy]:
    """Return the strategy and those it decorates in turn: Flower's privacy wrappers do."""
    layers = [strategy]
    while isinstance(inner := getattr(layers[-1], "strategy", None), Strategy):
        layers.append(inner)
    return layers
