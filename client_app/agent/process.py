"""The agent's process: holds keys and data, and answers requests on a Unix socket.

It needs no network. It may be killed at any moment: everything that must survive is in the store.
"""

import logging
import os
import threading
from collections.abc import Callable
from socket import socket
from typing import TYPE_CHECKING

from client_app.configuration import Configuration
from client_app.final_models.model_folder import FinalModels
from client_app.hospital_folder import HospitalFolder
from client_app.state.asked_experiments import asked_experiments
from client_app.state.decisions import DecisionFile
from client_app.state.privacy.ledger_file import open_ledger_file
from client_app.state.sqlite_store import SqliteStore
from client_app.unix_groups import group_number
from operation.clock import Clock
from operation.http_server import HttpServer
from operation.unix_socket import listening
from protocol import __version__
from protocol.study.roster import Roster

from .api import AgentApi, Health
from .connections import BACKLOG, LimitedConnection
from .evaluations import EvaluationRunner
from .hardening import harden_process

if TYPE_CHECKING:
    from client_app.hospital.hospital import Hospital

logger = logging.getLogger("feddc.agent")

# Docker sends SIGKILL ten seconds after SIGTERM.
_SHUTDOWN_SECONDS = 8
_EXPIRY_SECONDS = 60 * 60


def serve(folder: HospitalFolder, configuration: Configuration, roster: Roster) -> None:
    """Serve until a signal asks to stop; the caller has run the checks of check/essentials.py."""
    harden_process()
    store = SqliteStore(folder.store_file)
    evaluations = EvaluationRunner(folder)
    logger.info("%s: reading the data", configuration.hospital.name)  # may take minutes
    hospital = _hospital(folder, configuration, roster, store, evaluations.model_kept)
    health = Health(configuration.hospital.name, roster.fingerprint, __version__)
    api = AgentApi(hospital, health, maximum_bytes=configuration.agent.maximum_request_bytes)
    for waiting in (one for one in asked_experiments(folder) if one.state == "waiting"):
        logger.warning(
            "%s: experiment %s waits for your approval: see `feddc hospital experiments`",
            health.name,
            waiting.experiment,
        )
    expire = threading.Thread(target=expire_regularly, args=(api, hospital), daemon=True)
    expire.start()
    evaluations.start()
    with listening(configuration.socket, group_number(configuration.agent.group)) as listener:
        logger.info("%s: ready at %s", health.name, configuration.socket)
        run(api, listener)
    evaluations.stop()
    if api.busy:
        logger.warning("stopped while working on a request; a retry will repeat the work")
        logging.shutdown()
        os._exit(0)  # a working thread can't be stopped; what it has not stored is discarded
    api.finish()
    store.close()
    logger.info("%s: stopped", health.name)


def run(api: AgentApi, listener: socket) -> None:
    """Answer requests on the socket until SIGTERM, SIGINT or SIGHUP."""
    server = HttpServer(
        api.app,
        shutdown_seconds=_SHUTDOWN_SECONDS,
        connection=LimitedConnection,
        backlog=BACKLOG,
    )
    server.run(sockets=[listener])


def expire_regularly(api: AgentApi, hospital: "Hospital", clock: Clock | None = None) -> None:
    """Destroy experiments whose time is over, now and every hour, even if no request arrives."""
    clock = clock or Clock()
    while True:
        try:
            api.between_requests(hospital.expire_experiments).result()
        except Exception:
            logger.exception("could not destroy expired experiments; retrying in an hour")
        clock.sleep(_EXPIRY_SECONDS)


def _hospital(
    folder: HospitalFolder,
    configuration: Configuration,
    roster: Roster,
    store: SqliteStore,
    on_kept: Callable[[], None],
) -> "Hospital":
    import torch  # takes seconds: imported after the store was opened without errors

    from client_app.hospital.hospital import Hospital
    from client_app.hospital_data import load_partition

    data = configuration.data
    torch.set_num_threads(data.threads)
    codebook = folder.codebook(roster)
    return Hospital(
        configuration.hospital.name,
        load_partition(folder, configuration, codebook, record=True),
        store,
        identity=folder.identity(),
        roster=roster,
        policy=configuration.policy,
        codebook=None if codebook is None else codebook.digest,
        decisions=DecisionFile(folder.decisions_file),
        final_models=FinalModels(folder.models, codebook, on_kept),
        device=data.device,
        privacy_file=open_ledger_file(folder.privacy_ledger_file),
    )
