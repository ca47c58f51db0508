"""Python code in a process of its own, which a test may kill."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(script: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start a script that can import this project's packages."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
