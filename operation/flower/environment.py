"""The environment of Flower's processes: SuperLink, SuperNode, and everything that they start."""

import os
import sys
from pathlib import Path

from operation.processes.process_group import MARK

_PACKAGES = Path(__file__).resolve().parents[2]
_LOCAL = "127.0.0.1,localhost"

POLL_SECONDS_VARIABLE = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"


def flower_environment(home: Path | None = None) -> dict[str, str]:
    """Return this process's environment, with Flower's folder and without telemetry.

    Flower's processes find our packages and Flower's own commands, and connect to each other
    directly even where an HTTP proxy is configured.
    """
    ours = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": _prepended(str(Path(sys.executable).parent), "PATH"),
        "PYTHONPATH": _prepended(str(_PACKAGES), "PYTHONPATH"),
        "NO_PROXY": _prepended(_LOCAL, "NO_PROXY", ","),
        "no_proxy": _prepended(_LOCAL, "no_proxy", ","),
    }
    if home is not None:
        ours[MARK] = str(home)
    return dict(os.environ) | ours


def superlink_environment(home: Path, *, poll_seconds: float) -> dict[str, str]:
    """Return the environment of a SuperLink and its ServerApps.

    `poll_seconds` pass between two looks for a run that is to be started.
    """
    ours = {
        # Our packages are installed; Flower would install an app's dependencies for every run.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        POLL_SECONDS_VARIABLE: str(poll_seconds),
    }
    return {"OMP_NUM_THREADS": "1"} | flower_environment(home) | ours


# For a ServerApp with large models: it sends and fetches their 5 MiB pieces one by one.
ONE_PIECE_AT_A_TIME = {
    "FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PUSHES": "1",
    "FLWR_PRIVATE_MAX_CONCURRENT_OBJ_PULLS": "1",
}


def _prepended(first: str, variable: str, separator: str = os.pathsep) -> str:
    rest = os.environ.get(variable)
    return f"{first}{separator}{rest}" if rest else first
