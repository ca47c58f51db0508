"""The agent's process: opens what is secret, serves it on a Unix socket, ends without a trace.

It has no network. Whatever it holds stays in memory between requests; whatever must survive it is
in the store, so that it may be killed at any moment.
"""

import ctypes
import logging
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

import uvicorn

from client_app.configuration import Configuration
from client_app.hospital_folder import HospitalFolder
from client_app.state.sqlite_store import SqliteStore
from operation import signals
from operation.unix_socket import listening
from protocol import __version__
from protocol.study.roster import Roster

from .api import AgentApi, Health
from .permissions import group_number

if TYPE_CHECKING:
    from client_app.hospital.hospital import Hospital

logger = logging.getLogger("feddc.agent")

# Docker kills ten seconds after it asked.
_FINISHING_SECONDS = 8
_PR_SET_DUMPABLE = 4


def serve(folder: HospitalFolder, configuration: Configuration, roster: Roster) -> None:
    """Serve until asked to stop. What can be wrong has been checked (see readiness.py)."""
    keep_to_itself()
    store = SqliteStore(folder.store_file)
    hospital = _hospital(folder, configuration, roster, store)
    health = Health(configuration.hospital.name, roster.fingerprint, __version__)
    api = AgentApi(hospital, health, maximum_bytes=configuration.agent.maximum_request_bytes)
    with listening(configuration.socket, group_number(configuration.agent.group)) as listener:
        logger.info("%s: ready at %s", health.name, configuration.socket)
        run(api, listener)
    if api.busy:
        logger.warning("stopped in the middle of a request; asked again, it will be repeated")
        logging.shutdown()
        os._exit(0)  # a thread at work can't be stopped, and whatever it has not stored is void
    store.close()
    logger.info("%s: stopped", health.name)


def run(api: AgentApi, listener: socket) -> None:
    """Answer on the socket until SIGTERM, SIGINT or SIGHUP."""
    config = uvicorn.Config(
        api.app,
        loop="asyncio",
        http="h11",  # the strictest reader of headers, and it limits their size
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_FINISHING_SECONDS,
    )
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Uvicorn, but told to stop it ends as one that did its work: not by raising the signal."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        signals.catch(self.handle_exit)
        yield


def _hospital(
    folder: HospitalFolder, configuration: Configuration, roster: Roster, store: SqliteStore
) -> "Hospital":
    import torch  # takes seconds: what is wrong with a store should be said before

    from client_app.hospital.hospital import Hospital
    from learning.local_data import load_own

    data = configuration.data
    torch.set_num_threads(data.threads)
    share = load_own(
        configuration.local,
        configuration.hospital.name,
        classes=tuple(data.classes),
        standardise=data.standardise,
    )
    return Hospital(
        configuration.hospital.name,
        share,
        store,
        identity=folder.identity(),
        roster=roster,
        policy=configuration.policy,
        device=data.device,
    )


def keep_to_itself() -> None:
    """Leave neither files that others could read nor memory that they could look into."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if Path("/proc/self/status").exists():
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
