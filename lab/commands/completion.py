"""What the shell completes for the lab's commands; nothing here imports torch."""

import tomllib
from pathlib import Path
from typing import Any

import click

from lab.standard_methods import STANDARD, method_names
from learning.names import dataset_names

_EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def experiments(incomplete: str) -> list[str]:
    """Return the names of experiments and ablations."""
    return sorted(name for name in _files() if name.startswith(incomplete))


def methods(ctx: click.Context, incomplete: str) -> list[str]:
    """Return what may follow in a comma-separated list of methods.

    They are those of the experiments on the line, or the standard ones if there is none.
    """
    # An option that still lacks its value keeps click from assigning the arguments.
    chosen = [*(ctx.params.get("names") or ()), *ctx.args]
    files = [file for name, file in _files().items() if name in chosen]
    preset = str(ctx.params.get("preset") or "laptop")
    found = [_methods(tomllib.loads(file.read_text("utf-8")), preset) for file in files]
    names = dict.fromkeys(name for one in found or [tuple(STANDARD)] for name in one)
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name not in before.split(",")]


def datasets(incomplete: str) -> list[str]:
    """Return the names of all data sets."""
    return dataset_names()


def _methods(experiment: dict[str, Any], preset: str) -> tuple[str, ...]:
    added = (
        name
        for name, change in experiment.get("method", {}).items()
        if name not in STANDARD and preset in (change.get("presets") or (preset,))
    )
    return method_names(
        experiment.get(preset, {}).get("methods", ()), experiment.get("methods", ()), added
    )


def _files() -> dict[str, Path]:
    found = (file for kind in ("paper", "ablations") for file in (_EXPERIMENTS / kind).iterdir())
    return {file.stem: file for file in found if file.suffix == ".toml"}
