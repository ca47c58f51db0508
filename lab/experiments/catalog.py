"""Find an experiment by its name: a TOML file in this package."""

import difflib
import tomllib
from importlib.resources import files
from importlib.resources.abc import Traversable

from lab.experiments.definition import Experiment, ExperimentError

_RENAMED = {"samples": "examples"}


def experiment_names() -> tuple[str, ...]:
    """Return the names of the paper's experiments."""
    return tuple(sorted(_files("paper")))


def ablation_names() -> tuple[str, ...]:
    """Return the names of our ablations."""
    return tuple(sorted(_files("ablations")))


def load_experiment(name: str) -> Experiment:
    """Read the experiment or ablation of this name."""
    found = _files("paper") | _files("ablations")
    if new := _RENAMED.get(name):
        raise ExperimentError(f"experiment {name!r} was renamed: use {new!r}")
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`feddc lab list` shows all"
        raise ExperimentError(f"no experiment is called {name!r}: {hint}")
    values = tomllib.loads(found[name].read_text("utf-8"))
    return Experiment.parse({"name": name} | values, source=f"{name}.toml")


def _files(folder: str) -> dict[str, Traversable]:
    return {
        file.name.removesuffix(".toml"): file
        for file in (files("lab.experiments") / folder).iterdir()
        if file.name.endswith(".toml")
    }
