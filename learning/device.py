"""Where to train: the device that the setting `device` names, or the best one of this machine."""

import torch

from learning.models import ModelError
from learning.settings import TrainingSettings


def find_device(name: str, settings: TrainingSettings) -> torch.device:
    """Return the device; `auto` takes CUDA, else Apple's MPS, else the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        usable = torch.backends.mps.is_available() and not _why_not_mps(settings)
        return torch.device("mps" if usable else "cpu")
    missing = (name == "cuda" and not torch.cuda.is_available()) or (
        name == "mps" and not torch.backends.mps.is_available()
    )
    if missing:
        raise ModelError(
            f"device = {name}, but PyTorch finds no such device here: use cpu, or auto"
        )
    if name == "mps" and (reason := _why_not_mps(settings)):
        raise ModelError(f"device = mps has no 64-bit numbers, which {reason} needs: use cpu")
    return torch.device(name)


def _why_not_mps(settings: TrainingSettings) -> str:
    if settings.precision == "float64":
        return "precision = float64"
    return "" if settings.privacy_unit == "none" else f"privacy-unit = {settings.privacy_unit}"
