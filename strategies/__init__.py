"""The algorithm at the server: FedDC around any Flower strategy, and aggregators of its own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strategies.aggregators.geometric_median import GeometricMedian
    from strategies.aggregators.radon import RadonPoint
    from strategies.feddc import FedDC
    from strategies.session.sealed_study import SealedStudy

__all__ = ["FedDC", "GeometricMedian", "RadonPoint", "SealedStudy"]

_MODULES = {
    "FedDC": "strategies.feddc",
    "GeometricMedian": "strategies.aggregators.geometric_median",
    "RadonPoint": "strategies.aggregators.radon",
    "SealedStudy": "strategies.session.sealed_study",
}


def __getattr__(name: str) -> Any:
    # Lazily: a process that needs one small module of this package must not load Flower.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
