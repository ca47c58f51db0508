"""Requests to a SuperLink, through the API behind Flower's own `flwr` command.

Every `flwr` call is a new process that spends a second on imports; a run needs three. These are
the same requests from this process.
"""

import hashlib
import json
import os
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx
import tomli_w
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fab_pb2 import Fab as FabMessage
from flwr.proto.federation_config_pb2 import SimulationConfig
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from operation.config import Scalar
from operation.tls import client_context

RequestError = httpx.HTTPError  # refused, or the SuperLink can't be reached


@dataclass(frozen=True)
class RunStatus:
    """A run's state in Flower's words, e.g. `finished:completed`."""

    status: str
    details: str

    @property
    def is_over(self) -> bool:
        return self.status.startswith("finished")


@dataclass(frozen=True)
class Node:
    """A registered SuperNode."""

    node_id: int
    name: str
    public_key: bytes  # PEM
    status: str  # registered, online, offline
    online_until: float | None

    @property
    def is_online(self) -> bool:
        return self.status == "online"

    @property
    def last_seen(self) -> float | None:
        """Time of the last heartbeat, in seconds since 1970, to a minute: Flower stores no more."""
        return None if self.online_until is None else min(self.online_until, time.time())


class ControlApi:
    """A connection to a SuperLink on this machine.

    With TLS if its authority is given. `secret` is the file with its secret, for one that was
    started by private_superlink.py.
    """

    def __init__(
        self, address: str, *, authority: bytes | None = None, secret: Path | None = None
    ) -> None:
        with _proxies_ignored():
            self._client = ControlHttpClient.from_server_address(
                address,
                insecure=authority is None,
                root_certificates=authority,
                interceptors=[] if secret is None else [_Authorization(secret)],
            )
        # A SuperLink that stops waits for connections that are left open.
        weakref.finalize(self, self._client.close)

    def start_simulation(self, bundle: bytes, *, nodes: int, cpus: int | None) -> int:
        """Start the app on `nodes` simulated SuperNodes; return the run's id."""
        engine = SimulationConfig(
            num_supernodes=nodes, client_resources_num_cpus=1, init_args_num_cpus=cpus
        )
        request = StartRunRequest(fab=_fab(bundle), override_federation_config=engine)
        return self._client.StartRun(request).run_id

    def start_run(self, bundle: bytes) -> int:
        """Start the app on the SuperNodes that are registered; return the run's id."""
        return self._client.StartRun(StartRunRequest(fab=_fab(bundle))).run_id

    def stop_run(self, run_id: int) -> None:
        self._client.StopRun(StopRunRequest(run_id=run_id))

    def nodes(self) -> list[Node]:
        """Return the SuperNodes that are registered now."""
        return [
            Node(
                node.node_id,
                node.name,
                node.public_key,
                node.status,
                node.online_until if node.HasField("online_until") else None,
            )
            for node in self._client.ListNodes(ListNodesRequest()).nodes_info
            if node.status != "unregistered"
        ]

    def register_node(self, name: str, public_key: bytes) -> int:
        """Let the SuperNode with this key (PEM) connect; return its id."""
        request = RegisterNodeRequest(public_key=public_key, name=name)
        return self._client.RegisterNode(request).node_id

    def unregister_node(self, node_id: int) -> None:
        self._client.UnregisterNode(UnregisterNodeRequest(node_id=node_id))

    def log(self, run_id: int) -> Iterator[str]:
        """Yield the run's log as it is written; ends when the run has finished."""
        for part in self._client.StreamLogs(StreamLogsRequest(run_id=run_id, after_timestamp=0)):
            yield part.log_output

    def status(self, run_id: int) -> RunStatus:
        """Return the state of a run."""
        run = self._client.ListRuns(ListRunsRequest(run_id=run_id)).run_dict[run_id]
        parts = (run.status.status, run.status.sub_status)
        return RunStatus(":".join(part for part in parts if part), run.status.details)

    def is_over(self, run_id: int) -> bool:
        """Return whether Flower has finished a run, or does not know it."""
        try:
            return self.status(run_id).is_over
        except httpx.HTTPStatusError as error:
            refused = error.response.status_code == HTTPStatus.UNAUTHORIZED
            if error.response.is_client_error and not refused:
                return True
            raise


@dataclass(frozen=True)
class _Authorization:
    """Adds the SuperLink's secret to every request."""

    secret: Path

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        # Read every time: a SuperLink that is restarted has another one.
        with suppress(OSError):  # none yet: the SuperLink will refuse
            context.request.headers["Authorization"] = f"Bearer {self.secret.read_text()}"
        return call_next(context)


def pack(*, server_app: str, client_app: str, config: Mapping[str, Scalar]) -> bytes:
    """Return a Flower App Bundle that names the app's two components and holds its run config.

    It carries no code: every side imports the packages it has installed, and no file of the user's
    can be shipped by accident.
    """
    app = {
        "publisher": "feddc",
        "components": {"serverapp": server_app, "clientapp": client_app},
        "config": dict(config),
    }
    project = {"name": "feddc", "version": "0", "description": "FedDC", "license": "Apache-2.0"}
    pyproject = tomli_w.dumps({"project": project, "tool": {"flwr": {"app": app}}})
    bundle, _ = build_fab_from_files({"pyproject.toml": pyproject.encode()})
    return bundle


def is_up(address: str, authority: bytes | None = None) -> bool:
    """Return whether a SuperLink answers at the address."""
    verify = client_context(authority.decode()) if authority else True
    scheme = "https" if authority else "http"
    try:
        answer = httpx.get(
            f"{scheme}://{address}/health", trust_env=False, timeout=2, verify=verify
        )
    except httpx.HTTPError:
        return False
    return answer.is_success


def explain(error: httpx.HTTPError) -> str:
    """Describe in one line why a request failed, in Flower's words if it gave any."""
    if isinstance(error, httpx.HTTPStatusError):
        try:
            answer = json.loads(error.response.text)
            return str(answer.get("message") or answer["detail"])
        except (ValueError, KeyError, AttributeError):
            return f"HTTP status {error.response.status_code}"
    return " ".join(str(error).split()) or type(error).__name__


def _fab(bundle: bytes) -> FabMessage:
    return fab_to_proto(Fab(hashlib.sha256(bundle).hexdigest(), bundle, {}))


@contextmanager
def _proxies_ignored() -> Iterator[None]:
    # Requests to 127.0.0.1 would otherwise go to the HTTP_PROXY of a hospital or university.
    before = os.environ.get("NO_PROXY")
    os.environ["NO_PROXY"] = "127.0.0.1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["NO_PROXY"]
        else:
            os.environ["NO_PROXY"] = before
