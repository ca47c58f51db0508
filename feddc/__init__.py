"""Federated daisy-chaining for Flower: everything that a user's own program imports.

from feddc import FedDC
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feddc._shadowing import check_packages

if TYPE_CHECKING:
    from client_app.sealing_mod import sealing_mod
    from strategies import FedDC, GeometricMedian, RadonPoint, ScheduleOptions, SealedStudy

__all__ = [
    "FedDC",
    "GeometricMedian",
    "RadonPoint",
    "ScheduleOptions",
    "SealedStudy",
    "sealing_mod",
]

_MODULES = dict.fromkeys(__all__, "strategies") | {"sealing_mod": "client_app.sealing_mod"}

check_packages()


def __getattr__(name: str) -> Any:
    # Lazily: `import feddc` loads neither Flower nor PyTorch.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
