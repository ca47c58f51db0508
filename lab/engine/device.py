"""Choose the device: the one in the settings, else a GPU where there is one."""

import torch

from learning.settings import LocalSettings


def chosen_device(local: LocalSettings) -> torch.device:
    """Return the configured device; without a setting or with `auto`, CUDA or the CPU."""
    if "device" in local.model_fields_set and local.device != "auto":
        return torch.device(local.device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
