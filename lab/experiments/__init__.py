"""The paper's experiments and our ablations, each a small TOML file."""

from lab.experiments.catalog import ablation_names, experiment_names, load_experiment
from lab.experiments.definition import (
    Experiment,
    ExperimentError,
    PaperFigure,
    Preset,
    PresetName,
    Variant,
)
from lab.experiments.methods import Method, methods_of

__all__ = [
    "Experiment",
    "ExperimentError",
    "Method",
    "PaperFigure",
    "Preset",
    "PresetName",
    "Variant",
    "ablation_names",
    "experiment_names",
    "load_experiment",
    "methods_of",
]
