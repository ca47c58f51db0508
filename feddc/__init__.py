"""Federated daisy-chaining for Flower: everything that a user's own program imports.

from feddc import FedDC

In a notebook: `feddc.simulate(dataset="digits", hospitals=10)`, `feddc.lab.run("mnist", seeds=3)`,
`feddc.open_run("runs/one")`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feddc._shadowing import check_packages

if TYPE_CHECKING:
    from client_app.sealing_mod import sealing_mod
    from lab.notebook import comparison as lab
    from lab.notebook.single_run import open_run, simulate
    from strategies import FedDC, GeometricMedian, RadonPoint, SealedStudy

__all__ = [
    "FedDC",
    "GeometricMedian",
    "RadonPoint",
    "SealedStudy",
    "lab",
    "open_run",
    "sealing_mod",
    "simulate",
]

_MODULES = dict.fromkeys(__all__, "strategies") | {
    "lab": "lab.notebook.comparison",
    "open_run": "lab.notebook.single_run",
    "sealing_mod": "client_app.sealing_mod",
    "simulate": "lab.notebook.single_run",
}

check_packages()


def __getattr__(name: str) -> Any:
    # Lazily: `import feddc` loads neither Flower nor PyTorch.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    return module if name == "lab" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
