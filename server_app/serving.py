"""SuperLink and proxy kept running by one process, which writes their logs and clears up."""

import logging
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from protocol import log_lines
from protocol.supervision import Program, keep_running

from . import files, own_processes, proxy
from .service_lock import AlreadyUp, ServiceLock
from .study import FOLDER_VARIABLE, INTERNAL_HOST, Study, StudyError

Part = Literal["superlink", "proxy"]
PARTS: tuple[Part, ...] = ("superlink", "proxy")

_PACKAGES = Path(__file__).resolve().parents[1]
_POLL_SECONDS = "0.05"


class ServiceError(Exception):
    """The service did not start or stop; the message says why and what to do."""


def serve(study: Study, parts: Sequence[Part], *, terminal: bool) -> int:
    """Keep the parts running until a signal asks to end; return the signal's number."""
    name = "-".join(parts)
    with ServiceLock(lock_file(study, name)) as lock:
        file = "coordinator" if len(parts) > 1 else name
        logger = log_lines.configure(study.logs / f"{file}.jsonl", terminal=terminal)
        if "proxy" not in parts:
            proxy.prepare_for_container(study)
        programs = [_program(study, part, lock, logger.getChild(part)) for part in parts]
        logger.info(f"starting {' and '.join(parts)} of the study {study.name}")
        number = keep_running(programs)
        if "superlink" in parts:
            own_processes.end_all(study.flower_home)
        logger.info(f"stopped ({signal.Signals(number).name})")
        return number


def lock_file(study: Study, name: str) -> Path:
    """Return the lock of the process that runs these parts."""
    return study.superlink / f"{name}.pid"


def _program(study: Study, part: Part, lock: ServiceLock, logger: logging.Logger) -> Program:
    def note(pid: int) -> None:
        lock.note(part, pid)

    if part == "proxy":
        command = proxy.prepare(study)
        return Program(
            part, lambda: command, dict(os.environ), logger, after_start=note, explain=_explain
        )

    def clear() -> None:
        # A ServerApp that outlived its SuperLink would go on writing to its experiment's folder.
        own_processes.end_all(study.flower_home)

    return Program(
        part,
        lambda: _superlink(study),
        environment(study),
        logger,
        before_start=clear,
        after_start=note,
        explain=_explain,
    )


def _superlink(study: Study) -> list[str]:
    files.make_folder(study.superlink)
    files.make_folder(study.flower_home)
    certificate = [
        f"--ssl-ca-certfile={study.authority}",
        f"--ssl-certfile={study.tls / 'server.pem'}",
        f"--ssl-keyfile={study.tls / 'server.key'}",
    ]
    address = [f"--host={INTERNAL_HOST}", f"--port={study.file.internal_port}"]
    return [
        *_flower("flower-superlink"),
        *certificate,
        *address,
        "--enable-supernode-auth",
        "--isolation=subprocess",
        "--disable-runtime-dependency-installation",
        f"--database={study.superlink / 'state.db'}",
    ]


def _flower(name: str) -> list[str]:
    path = Path(sys.executable).parent / name
    found = str(path) if path.exists() else shutil.which(name)
    if found is None:
        raise ServiceError(f"{name} is not installed beside {sys.executable}: install feddc again")
    return [found]


def environment(study: Study) -> dict[str, str]:
    """Return the environment of the SuperLink and the ServerApps that it starts."""
    ours = {
        FOLDER_VARIABLE: str(study.folder),
        own_processes.MARK: str(study.flower_home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        # Read by the SuperExec, which starts the ServerApp of a run.
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": _POLL_SECONDS,
        "PYTHONUNBUFFERED": "1",
        "PATH": _joined(str(Path(sys.executable).parent), os.environ.get("PATH")),
        "PYTHONPATH": _joined(str(_PACKAGES), os.environ.get("PYTHONPATH")),
        "NO_PROXY": f"127.0.0.1,localhost,{os.environ.get('NO_PROXY', '')}".rstrip(","),
        "no_proxy": f"127.0.0.1,localhost,{os.environ.get('no_proxy', '')}".rstrip(","),
    }
    return {"OMP_NUM_THREADS": "1"} | dict(os.environ) | ours


def _explain(code: int, last: str) -> str:
    for sign in ("address already in use", "Address already in use"):
        if sign in last:
            return "found its port taken by another program"
    return ""


def _joined(first: str, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first


def main() -> None:
    """Serve in the background: `python -m server_app.serving FOLDER PART...`."""
    parts: list[Part] = [part for part in PARTS if part in sys.argv[2:]]
    try:
        serve(Study.open(Path(sys.argv[1])), parts, terminal=False)
    except (ServiceError, StudyError, AlreadyUp, proxy.ProxyError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
