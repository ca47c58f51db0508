"""The paper's experiments and our own studies: what is compared with what, as small TOML files."""

from lab.experiments.catalog import experiment_names, load_experiment, study_names
from lab.experiments.definition import (
    Experiment,
    ExperimentError,
    PaperFigure,
    Setting,
    SettingName,
    Variant,
)
from lab.experiments.methods import Method, methods_of

__all__ = [
    "Experiment",
    "ExperimentError",
    "Method",
    "PaperFigure",
    "Setting",
    "SettingName",
    "Variant",
    "experiment_names",
    "load_experiment",
    "methods_of",
    "study_names",
]
