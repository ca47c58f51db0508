"""Import packages that only some data need: the extras of pyproject.toml."""

import importlib
from typing import Any

from learning.data.examples import DataError
from learning.extras import install


class MissingExtra(DataError):
    """A package is not installed; the message has the command that installs it."""


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an extra; raise a MissingExtra if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise MissingExtra(f"{purpose} needs the package {package}: {install(extra)}") from error
