"""The names of models and data sets, without importing any of them.

For the shell's completion, which can't wait for PyTorch. A test compares them with the registries.
"""

from importlib.metadata import entry_points

MODEL_PLUG_INS, DATASET_PLUG_INS = "feddc.models", "feddc.datasets"  # entry point groups

MODELS = ("linear", "mlp", "mnist-cnn", "mri-cnn", "resnet-small", "resnet18", "cnn-3d")
DATASETS = (
    "brain-mri",
    "breast-cancer",
    "chest-xray",
    "cifar10",
    "csv",
    "digits",
    "heart-disease",
    "image-folder",
    "medical-folder",
    "mnist",
    "susy",
    "susy-stand-in",
    "synthetic",
)


def model_names() -> list[str]:
    """Return the built-in models, then the installed plug-ins."""
    return [*MODELS, *_installed(MODEL_PLUG_INS, MODELS)]


def dataset_names() -> list[str]:
    """Return all data sets, sorted."""
    return sorted((*DATASETS, *_installed(DATASET_PLUG_INS, DATASETS)))


def _installed(group: str, built_in: tuple[str, ...]) -> list[str]:
    return sorted({point.name for point in entry_points(group=group)} - set(built_in))
