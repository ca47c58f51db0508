"""What a simulation asks of its SuperLink, through the API behind Flower's own `flwr` command.

Every `flwr` call is a new process that spends a second on imports; a run needs three. These are
the same requests from this process. The modules are not Flower's public interface: flwr is pinned
to one minor version, and the end-to-end test notices when it moves.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import tomli_w
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest, StreamLogsRequest
from flwr.proto.federation_config_pb2 import SimulationConfig
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab

from learning.settings import Scalar

RequestError = httpx.HTTPError  # refused, or the SuperLink is gone


@dataclass(frozen=True)
class RunStatus:
    """A run's state in Flower's words, e.g. `finished:completed`."""

    status: str
    details: str


class ControlApi:
    """A connection to a SuperLink on this machine."""

    def __init__(self, address: str) -> None:
        with _proxies_ignored():
            self._client = ControlHttpClient.from_server_address(
                address, insecure=True, root_certificates=None, interceptors=[]
            )

    def start_run(self, bundle: bytes, *, nodes: int, cpus: int | None) -> int:
        """Start the app on `nodes` simulated SuperNodes; return the run's id."""
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        engine = SimulationConfig(
            num_supernodes=nodes, client_resources_num_cpus=1, init_args_num_cpus=cpus
        )
        request = StartRunRequest(fab=fab_to_proto(fab), override_federation_config=engine)
        return self._client.StartRun(request).run_id

    def log(self, run_id: int) -> Iterator[str]:
        """Yield the run's log as it is written; ends when the run has finished."""
        for part in self._client.StreamLogs(StreamLogsRequest(run_id=run_id, after_timestamp=0)):
            yield part.log_output

    def status(self, run_id: int) -> RunStatus:
        """Ask how the run is doing."""
        run = self._client.ListRuns(ListRunsRequest(run_id=run_id)).run_dict[run_id]
        parts = (run.status.status, run.status.sub_status)
        return RunStatus(":".join(part for part in parts if part), run.status.details)


def pack(*, server_app: str, client_app: str, config: Mapping[str, Scalar]) -> bytes:
    """Return a Flower App Bundle that names the app's two components and holds its run config.

    It carries no code: server and clients run on this machine and import the installed packages,
    so that no file of the user's can be shipped by accident.
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


def is_up(address: str) -> bool:
    """Tell whether a SuperLink answers at the address."""
    try:
        return httpx.get(f"http://{address}/health", trust_env=False, timeout=1).is_success
    except httpx.HTTPError:
        return False


@contextmanager
def _proxies_ignored() -> Iterator[None]:
    # A hospital's or university's HTTP_PROXY would otherwise be asked for 127.0.0.1.
    before = os.environ.get("NO_PROXY")
    os.environ["NO_PROXY"] = "127.0.0.1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["NO_PROXY"]
        else:
            os.environ["NO_PROXY"] = before
