"""The machine that figures come from: times mean nothing without it."""

import os
import platform
import re
from pathlib import Path

import torch

from lab.engine.backends.backend import cores


def hardware() -> dict[str, str | int | float]:
    """Return processor, cores, graphics card, versions and load, and no name of the machine."""
    return {
        "processor": _processor(),
        "cores": cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        # A machine that had other work to do took longer than it would have.
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file() and (found := re.search(r"^model name\s*: (.*)$", info.read_text(), re.M)):
        return found[1].strip()
    return platform.processor() or platform.machine()
