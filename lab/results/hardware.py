"""The hardware that results were measured on."""

import os
import platform
import re
from pathlib import Path

import torch

from lab.engine.backends.backend import cores


def hardware() -> dict[str, str | int | float]:
    """Return processor, cores, GPU, versions and load, without the machine's name."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        # Times are longer on a machine with other load.
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file() and (found := re.search(r"^model name\s*: (.*)$", info.read_text(), re.M)):
        return found[1].strip()
    return platform.processor() or platform.machine()
