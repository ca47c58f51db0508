"""Evaluations of final models, in a child process: the agent goes on answering meanwhile.

In the answer to the coordinator they would take a time that depends on the number of patients.
Training a model on this hospital's data alone takes as long as an experiment, so the child gives
way to everything else, and is the first to go if memory runs out.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from client_app.final_models.model_folder import FinalModels
from client_app.hospital_folder import HospitalFolder

logger = logging.getLogger("feddc.agent")
_PROGRAM = "client_app.agent.evaluation_process"
_LOW_PRIORITY = 10
_FIRST_TO_GO = "500"
_END_SECONDS = 2.0


class EvaluationRunner:
    """Evaluates each model that lacks an evaluation, after a start and when one is kept."""

    def __init__(self, folder: HospitalFolder, command: Sequence[str] = ()) -> None:
        self._folder = folder
        self._command = list(command) or [sys.executable, "-m", _PROGRAM]
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._stopped = False
        self._child: subprocess.Popen[str] | None = None
        self._failed: set[str] = set()  # not tried again before the next start
        self._thread = threading.Thread(target=self._run, name="evaluations", daemon=True)

    def start(self) -> None:
        self._wake.set()
        self._thread.start()

    def model_kept(self) -> None:
        """Look for models without an evaluation, soon."""
        self._wake.set()

    def stop(self) -> None:
        """End a running evaluation; the next start repeats it."""
        with self._lock:
            self._stopped = True
            if self._child is not None:
                self._child.terminate()
        self._wake.set()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait()
            self._wake.clear()
            try:
                for name in self._pending():
                    self._evaluate(name)
            except Exception:
                logger.exception("could not evaluate final models; run `feddc hospital evaluate`")

    def _pending(self) -> list[str]:
        folders = FinalModels(self._folder.models).folders()
        names = [folder.path.name for folder in folders if not folder.is_evaluated]
        return [name for name in names if name not in self._failed]

    def _evaluate(self, name: str) -> None:
        arguments = ["hospital", "evaluate", name, "--folder", str(self._folder.path)]
        with self._lock:
            if self._stopped:
                return
            self._child = subprocess.Popen(  # noqa: S603 (our own interpreter and command)
                [*self._command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        child = self._child
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, _LOW_PRIORITY)
            Path(f"/proc/{child.pid}/oom_score_adj").write_text(_FIRST_TO_GO)
        _, errors = child.communicate()
        if self._stopped:
            return
        if child.returncode:
            self._failed.add(name)
            lines = errors.strip().splitlines() or [f"exit code {child.returncode}"]
            logger.warning("the model of %s could not be evaluated: %s", name, lines[-1])
        else:
            logger.info("the model of %s is evaluated: see %s", name, self._folder.models / name)
