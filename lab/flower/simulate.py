"""Run FedDC on Flower's simulation engine and return the summary of the run."""

import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.flower.several_runs import RUNS
from lab.flower.simulation_engine import EngineError, joins_ray_cluster, run_app
from learning.data import DataError
from learning.models import ModelError
from operation.config import Scalar, SettingsError
from operation.runs.event_file import FILE_NAME, Event, EventFile
from server_app.config.run_config import Settings, preflight

SERVER_APP, CLIENT_APP = "server_app.app:app", "client_app.courier:app"
SEVERAL = "lab.flower.several_runs:app"
INPUT_ERRORS = (SettingsError, DataError, ModelError)
_CLOSING_SECONDS = 60.0
_RAY_TIMEOUT = "timed out during startup"  # in Flower's log; its status has no reason then


class SimulationFailed(RuntimeError):
    """A run was started and did not succeed."""

    def __init__(self, reason: str, log_path: Path) -> None:
        super().__init__(reason)
        self.reason, self.log_path = reason, log_path


def simulate(
    settings: Settings,
    *,
    run_dir: Path,
    cpus: int | None = None,
    on_event: Callable[[Event], None] | None = None,
    verbose: bool = False,
) -> dict[str, Any]:
    """Run FedDC on simulated hospitals and return the run's summary.

    Results are written to `run_dir`, which must not contain a run already. `on_event` receives
    "starting" once the input is checked, then every line of metrics.jsonl soon after it is written.
    Wrong input raises one of INPUT_ERRORS before anything is started; later failures raise
    SimulationFailed.
    """
    tell = on_event or (lambda _: None)
    (summary,) = simulate_each(
        [settings], [run_dir], cpus=cpus, on_event=lambda _, event: tell(event), verbose=verbose
    )
    return summary


def simulate_each(
    runs: Sequence[Settings],
    run_dirs: Sequence[Path],
    *,
    cpus: int | None = None,
    on_event: Callable[[int, Event], None] | None = None,
    verbose: bool = False,
) -> list[dict[str, Any]]:
    """Run several experiments in turn on the same simulated hospitals: Flower starts once.

    They may differ in the coordinator's settings only. `on_event` also receives the run's number.
    Otherwise as `simulate`; the log is in the first folder.
    """
    folders = [folder.expanduser().resolve() for folder in run_dirs]
    tell = on_event or (lambda *_: None)
    settings = [one.replace(run_dir=str(folder)) for one, folder in zip(runs, folders, strict=True)]
    first = settings[0]
    if {one.local for one in settings} != {first.local} or len(
        {(one.algorithm.seed, one.algorithm.hospitals) for one in settings}
    ) != 1:
        raise SettingsError("runs of one simulation have the same data, seed and hospitals")
    _check_cpus(cpus)
    for one in settings:
        preflight(one)
    log_path = _new_log(folders[0])
    tell(0, {"event": "starting"})
    events = _Events([folder / FILE_NAME for folder in folders], tell)
    try:
        flower = run_app(
            server_app=SERVER_APP if len(settings) == 1 else SEVERAL,
            client_app=CLIENT_APP,
            config=_config(settings),
            nodes=first.algorithm.hospitals,
            cpus=cpus,
            log_path=log_path,
            watch=events.read,
            verbose=verbose,
        )
    except EngineError as error:
        raise SimulationFailed(events.failure() or str(error), log_path) from error
    if reason := events.failure() or _flower_failure(flower.status, flower.details, log_path):
        raise SimulationFailed(reason, log_path)
    if len(events.ends) < len(folders):
        raise SimulationFailed("the ServerApp ended without reporting a result", log_path)
    return [_summary(folder, log_path) for folder in folders]


def _config(settings: Sequence[Settings]) -> dict[str, Scalar]:
    if len(settings) == 1:
        return settings[0].as_config()
    shared = settings[0].as_config()
    changes = [
        {key: value for key, value in one.as_config().items() if value != shared[key]}
        for one in settings
    ]
    return shared | {RUNS: json.dumps(changes)}


def default_run_dir() -> Path:
    """Return a new path under `runs` in the current folder."""
    return Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


class _Events:
    """Follows metrics.jsonl of every run, which the ServerApp writes in turn."""

    def __init__(self, paths: Sequence[Path], on_event: Callable[[int, Event], None]) -> None:
        self._files, self._on_event = [EventFile(path) for path in paths], on_event
        self._ended = 0.0
        self.ends: list[Event] = []

    def read(self) -> None:
        """Pass on the lines written since the last call."""
        for number, file in enumerate(self._files):
            for event in file.new_events():
                if event.get("event") == "end":
                    self.ends.append(event)
                    self._ended = time.monotonic()
                self._on_event(number, event)
        is_over = len(self.ends) == len(self._files) or self.failure() is not None
        if is_over and time.monotonic() - self._ended > _CLOSING_SECONDS:
            raise EngineError(f"Flower did not end the run in {_CLOSING_SECONDS:.0f} s")

    def failure(self) -> str | None:
        """Return the ServerApp's reason for its failure; None if it did not fail."""
        if not self.ends or self.ends[-1].get("status") == "completed":
            return None
        return str(self.ends[-1].get("reason") or "the ServerApp failed without a reason")


def _flower_failure(status: str, details: str, log_path: Path) -> str | None:
    if status == "finished:completed":
        return None
    if _RAY_TIMEOUT in log_path.read_text("utf-8", errors="replace"):
        return "Ray did not start within its time limit, as on a very busy machine: run it again"
    # Flower's details begin with the same words for every exception of a ServerApp.
    said = details.removeprefix("Simulation failed with exception: ").strip()
    return f"{_one_line(said)} (Flower: {status})" if said else f"Flower's run status is {status}"


def _summary(run_dir: Path, log_path: Path) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads((run_dir / "summary.json").read_text("utf-8"))
    except FileNotFoundError:
        raise SimulationFailed("the ServerApp ended without a summary", log_path) from None
    return summary


def _check_cpus(cpus: int | None) -> None:
    if cpus is not None and joins_ray_cluster():
        address = os.environ["RAY_ADDRESS"]
        raise SettingsError(f"cpus can't be chosen for the Ray cluster at RAY_ADDRESS={address}")
    if cpus is not None and cpus < 1:
        raise SettingsError(f"cpus must be at least 1, got {cpus}")


def _new_log(run_dir: Path) -> Path:
    log_path = run_dir / "flower.log"
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        log_path.write_text("")
    except OSError as error:
        raise SettingsError(f"run-dir {run_dir} can't be written: {error.strerror}") from error
    return log_path


def _one_line(text: str) -> str:
    return " ".join(text.split())
