"""Tells the coordinator's operator that an experiment has ended or waits: a webhook or a command.

What is sent names the study, the experiment and what happened, never a hospital or a figure.
"""

import json
import shlex
import subprocess
from logging import WARNING
from typing import Literal

import httpx

from operation.flower.logger import log

Happening = Literal["completed", "failed", "waiting"]
_SECONDS = 10.0


class Notifier:
    """Sends each happening once in a row: a pause that goes on is told once."""

    def __init__(self, target: str, *, study: str, experiment: str) -> None:
        self._target, self._study, self._experiment = target, study, experiment
        self._last = ""

    def tell(self, happening: Happening) -> None:
        """Send a happening; a failure is logged and changes nothing."""
        if not self._target or happening == self._last:
            return
        self._last = happening
        message = {"study": self._study, "experiment": self._experiment, "event": happening}
        try:
            if self._target.startswith(("https://", "http://")):
                httpx.post(self._target, json=message, timeout=_SECONDS).raise_for_status()
            else:
                subprocess.run(  # noqa: S603 (the operator's own command)
                    shlex.split(self._target),
                    input=json.dumps(message).encode(),
                    timeout=_SECONDS,
                    check=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except (httpx.HTTPError, httpx.InvalidURL, OSError, subprocess.SubprocessError) as error:
            log(WARNING, "notify failed: %s", error)

    def resumed(self) -> None:
        """Note that the experiment goes on, so that its next pause is told again."""
        self._last = ""
