"""Flower's SuperLink, which serves only programs that have its secret.

Every user of a machine can connect to a port on its loopback interface. Flower's own SuperLink lets
whoever connects start runs, whose code it executes as its own user, and take the ServerApp's task.
Here both need the secret in the file of `--superexec-auth-secret-file`: the Control API as a bearer
token, tasks through Flower's own authentication. SuperNodes have keys of their own.
"""

import hmac
import math
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

from flwr.common.constant import ACCESS_TOKEN_KEY
from flwr.supercore.auth.typing import AccountInfo
from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin
from flwr.superlink.cli.flower_superlink import (
    _parse_superlink_lifespan_config as parse_configuration,
)
from flwr.superlink.cli.flower_superlink import _run_superlink_http_api as run_superlink
from flwr.superlink.config_loader import SuperLinkLifespanConfig

from operation.clock import Clock

from .environment import POLL_SECONDS_VARIABLE
from .options_and_logs import SECRET_OPTION
from .tasks import AcquiredTask, TaskSource

# After a request to the Control API, tasks are looked for often; otherwise rarely.
_ALERT_SECONDS, _IDLE_SECONDS = 10.0, 5.0

Metadata = Sequence[tuple[str, str | bytes]]


def serve() -> None:
    """Serve as `flower-superlink --isolation=process` does, and start the ServerApps."""
    configuration = parse_configuration()
    if configuration.superexec_auth_secret is None:
        sys.exit(f"the SuperLink was started without {SECRET_OPTION} and --isolation=process")
    asked = threading.Event()
    configuration.authn_plugin = _SecretAuthentication(configuration.superexec_auth_secret, asked)
    _AppLauncher(configuration, asked).start()
    run_superlink(lifespan_config=configuration)


class _SecretAuthentication(NoOpControlAuthnPlugin):
    """Flower's only account, for those who have the secret; sets an event whenever one asks."""

    def __init__(self, secret: bytes, asked: threading.Event) -> None:
        super().__init__()
        self._secret, self._asked = secret, asked

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        token = dict(metadata).get(ACCESS_TOKEN_KEY, b"")
        given = token.encode() if isinstance(token, str) else token
        if not hmac.compare_digest(given, self._secret):
            return False, None
        self._asked.set()
        return super().validate_tokens_in_metadata(metadata)


class _AppLauncher(threading.Thread):
    """Starts a process for every ServerApp or simulation, as Flower's SuperExec does.

    SuperExec passes a task's token on the command line, where every user can read it.
    """

    def __init__(self, configuration: SuperLinkLifespanConfig, asked: threading.Event) -> None:
        super().__init__(daemon=True)
        self._asked, self._last_asked = asked, -math.inf
        self._address = f"{configuration.host}:{configuration.port}"
        self._tls = ["--insecure"]
        authority = None
        if configuration.certificates is not None:
            authority = configuration.certificates[0]
            self._tls = ["--root-certificates", str(configuration.ssl_ca_certfile)]
        secret = configuration.superexec_auth_secret or b""
        self._tasks = TaskSource(self._address, secret, authority)
        self._running: dict[subprocess.Popen[bytes], Path] = {}
        self._clock = Clock()

    def run(self) -> None:
        pause = float(os.environ[POLL_SECONDS_VARIABLE])
        try:
            while True:
                if task := self._tasks.acquire():
                    self._launch(task)
                self._reap()
                self._wait(pause)
        except BaseException:
            # Without this thread no run would ever start; the SuperLink is restarted.
            traceback.print_exc()
            os._exit(1)

    def _wait(self, pause: float) -> None:
        """Pause; for longer if nobody has used the Control API, through which runs are started.

        Looking for a task writes to the SuperLink's database.
        """
        is_idle = self._clock.now() - self._last_asked > _ALERT_SECONDS
        if is_idle and not self._asked.wait(_IDLE_SECONDS):
            return
        if self._asked.is_set():
            self._asked.clear()
            self._last_asked = self._clock.now()
        self._clock.sleep(pause)

    def _launch(self, task: AcquiredTask) -> None:
        if not task.is_for_the_superlink:
            return  # the task expires
        descriptor, file = tempfile.mkstemp(prefix="task-", dir=os.environ["FLWR_HOME"])
        with os.fdopen(descriptor, "w", encoding="ascii") as token:
            token.write(task.token)
        command = [task.kind, "--runtime-api-address", self._address, "--token-file", file]
        process = subprocess.Popen(  # noqa: S603 (a program of Flower's)
            [*command, *self._tls, "--parent-pid", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the run's log has it
            stderr=subprocess.DEVNULL,
        )
        self._running[process] = Path(file)

    def _reap(self) -> None:
        for process in [process for process in self._running if process.poll() is not None]:
            self._running.pop(process).unlink(missing_ok=True)
