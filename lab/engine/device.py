"""Where to compute: on what the user named, else on a GPU when there is one."""

import torch

from learning.settings import LocalSettings


def chosen_device(local: LocalSettings) -> torch.device:
    """Return the device a setting names; left out, it is the GPU's where there is one."""
    if "device" in local.model_fields_set or not torch.cuda.is_available():
        return torch.device(local.device)
    return torch.device("cuda")
