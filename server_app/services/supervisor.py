"""The supervisor: one process that keeps the services running and writes their logs."""

import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from operation import files, log_lines
from operation.flower.environment import ONE_PIECE_AT_A_TIME, superlink_environment
from operation.flower.options_and_logs import SECRET_OPTION
from operation.processes import process_group
from operation.processes.supervision import Program, keep_running
from server_app.study.study_folder import FOLDER_VARIABLE, INTERNAL_HOST, Study, StudyError

from . import nginx, udp_notifier
from .database_erasure import erase_after_runs, erase_stopped
from .service_lock import AlreadyUp, ServiceLock

Part = Literal["superlink", "proxy"]
PARTS: tuple[Part, ...] = ("superlink", "proxy")

_POLL_SECONDS = 0.5


class ServiceError(Exception):
    """A service did not start; the message says why and what to do."""


def serve(study: Study, parts: Sequence[Part], *, terminal: bool) -> int:
    """Keep the parts running until a signal arrives; return the signal's number."""
    name = "-".join(parts)
    with ServiceLock(lock_file(study, name)) as lock:
        file = "coordinator" if len(parts) > 1 else name
        logger = log_lines.configure(study.logs / f"{file}.jsonl", terminal=terminal)
        if "proxy" not in parts:
            nginx.prepare_for_container(study)
        programs = [_program(study, part, lock, logger.getChild(part)) for part in parts]
        if "superlink" in parts:
            programs.append(_long_poll(study, logger.getChild("long-poll")))
        logger.info(f"starting {' and '.join(parts)} of the study {study.name}")
        if terminal and "superlink" in parts:  # in the background, `up` waits and registers
            threading.Thread(target=_register, args=(study, logger), daemon=True).start()
        if "superlink" in parts:
            erasing = (study.database, logger.getChild("erasure"))
            threading.Thread(target=erase_after_runs, args=erasing, daemon=True).start()
        number = keep_running(programs)
        if "superlink" in parts:
            process_group.end_all(study.flower_home)
            if problem := erase_stopped(study.database):
                logger.warning(problem)
        logger.info(f"stopped ({signal.Signals(number).name})")
        return number


def lock_file(study: Study, name: str) -> Path:
    """Return the lock of the process that runs these parts."""
    return study.superlink / f"{name}.pid"


def _program(study: Study, part: Part, lock: ServiceLock, logger: logging.Logger) -> Program:
    def note(pid: int) -> None:
        lock.note(part, pid)

    if part == "proxy":
        command = nginx.prepare(study)
        return Program(
            part, lambda: command, dict(os.environ), logger, after_start=note, explain=_explain
        )

    def clear() -> None:
        # A ServerApp that outlived its SuperLink would still write to its experiment's folder.
        process_group.end_all(study.flower_home)

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
    _make_secret(study.superlink_secret)
    certificate = [
        f"--ssl-ca-certfile={study.authority}",
        f"--ssl-certfile={study.tls / 'server.pem'}",
        f"--ssl-keyfile={study.tls / 'server.key'}",
    ]
    address = [f"--host={INTERNAL_HOST}", f"--port={study.file.internal_port}"]
    return [
        *_own("operation.flower.superlink"),
        *certificate,
        *address,
        "--enable-supernode-auth",
        "--isolation=process",
        f"{SECRET_OPTION}={study.superlink_secret}",
        "--disable-runtime-dependency-installation",
        f"--database={study.database}",
    ]


def _make_secret(file: Path) -> None:
    """Make the secret without which nobody on this machine can use the SuperLink."""
    files.replace(file, secrets.token_hex(32).encode(), mode=0o600)
    if not files.is_private(file):
        raise ServiceError(
            f"{file}: other users of this machine could read it, and use the SuperLink with it; "
            "move the study's folder to a file system that keeps owners and permissions"
        )


def _long_poll(study: Study, logger: logging.Logger) -> Program:
    command = [
        *_own("server_app.services.long_poll_server"),
        f"--listen={study.long_poll_address}",
        f"--superlink={study.superlink_address}",
        f"--authority={study.authority}",
    ]
    # Without the mark by which the SuperLink's processes are found: it may outlive them.
    paths = {"PYTHONPATH": environment(study)["PYTHONPATH"]}
    return Program("long-poll", lambda: command, dict(os.environ) | paths, logger, explain=_explain)


def _register(study: Study, logger: logging.Logger) -> None:
    """Register the SuperNodes of all members as soon as the SuperLink answers."""
    # In a process of its own: Flower's modules would stay in this one's memory for months.
    command = [
        *_own("operation.processes.supervision"),
        str(os.getpid()),
        *_own("server_app.study.registration"),
    ]
    done = subprocess.run(  # noqa: S603 (our own interpreter and module)
        [*command, str(study.folder)],
        env=environment(study) | {process_group.MARK: ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    for line in (done.stdout + done.stderr).splitlines():
        logger.log(logging.WARNING if done.returncode else logging.INFO, line)


def _own(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", module]


def environment(study: Study) -> dict[str, str]:
    """Return the environment of the SuperLink and the ServerApps that it starts."""
    ours = {
        FOLDER_VARIABLE: str(study.folder),
        udp_notifier.ADDRESS_VARIABLE: str(study.long_poll_address),
        # Large blocks go back to the system at once; see superlink.py.
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": str(256 * 1024),
        "MALLOC_TRIM_THRESHOLD_": str(1024 * 1024),
        "PYTHONUNBUFFERED": "1",
    }
    flower = superlink_environment(study.flower_home, poll_seconds=_POLL_SECONDS)
    return flower | ONE_PIECE_AT_A_TIME | ours


def _explain(code: int, last: str) -> str:
    for sign in ("address already in use", "Address already in use"):
        if sign in last:
            return "found its port taken by another program"
    return ""


def main() -> None:
    """Serve in the background: `python -m server_app.services.supervisor FOLDER PART...`."""
    parts: list[Part] = [part for part in PARTS if part in sys.argv[2:]]
    try:
        serve(Study.open(Path(sys.argv[1])), parts, terminal=False)
    except (ServiceError, StudyError, AlreadyUp, nginx.ProxyError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
