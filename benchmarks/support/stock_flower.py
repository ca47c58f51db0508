"""Flower's own deployment on this machine, set up as in its documentation, for comparison."""

from itertools import pairwise
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

from client_app.enrol.transport_key import new_transport_key
from operation.flower.control_api import ControlApi, is_up, pack
from server_app.study.certificates import make_authority, make_server_certificate

from .processes import Processes, free_port, wait_for
from .stock_app import TIMES_VARIABLE

_START_SECONDS, _ROUND_SECONDS = 180.0, 120.0


class StockFlower:
    """A SuperLink and SuperNodes with TLS and authentication, otherwise with default settings."""

    def __init__(self, folder: Path, processes: Processes, *, nodes: int) -> None:
        self._nodes = nodes
        self._times = folder / "times"
        port = free_port()
        address = f"localhost:{port}"
        make_authority(folder, "stock")
        make_server_certificate(folder, "localhost")
        authority = folder / "ca.crt"
        processes.start(
            "superlink",
            [
                "flower-superlink",
                *("--ssl-ca-certfile", authority),
                *("--ssl-certfile", folder / "server.pem"),
                *("--ssl-keyfile", folder / "server.key"),
                *("--host", "127.0.0.1", "--port", port),
                *("--database", folder / "state.db"),
                "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
            ],
            {"FLWR_HOME": str(folder / "home"), TIMES_VARIABLE: str(self._times)},
        )
        wait_for(lambda: is_up(address, authority.read_bytes()), "SuperLink", _START_SECONDS)
        self._api = ControlApi(address, authority=authority.read_bytes())
        for node in range(nodes):
            key_file = folder / f"node-{node}.key"
            private, public = new_transport_key()
            key_file.touch(0o600)
            key_file.write_bytes(private)
            self._api.register_node(f"node-{node}", _pem(public))
            processes.start(
                f"supernode-{node}",
                [
                    "flower-supernode",
                    *("--superlink", address),
                    *("--root-certificates", authority),
                    *("--auth-supernode-private-key", key_file),
                    *("--port", free_port()),
                    *("--node-config", f"partition-id={node} num-partitions={nodes}"),
                ],
                {"FLWR_HOME": str(folder / f"home-{node}")},
            )
        wait_for(self._all_online, "SuperNodes", _START_SECONDS)

    def legs(self, count: int) -> list[float]:
        """Run FedAvg; return the seconds of each round except the first, which fetches the app."""
        self._times.write_text("")
        bundle = pack(
            server_app="benchmarks.support.stock_app:server",
            client_app="benchmarks.support.stock_app:client",
            config={"rounds": count + 1, "nodes": self._nodes},
        )
        self.run(bundle, seconds=_START_SECONDS + count * _ROUND_SECONDS)
        ends = [float(line.split()[1]) for line in self._times.read_text().splitlines()]
        return [end - start for start, end in pairwise(ends[1:])]

    def run(self, bundle: bytes, *, seconds: float) -> None:
        """Run an app to its end on all SuperNodes."""
        run = self._api.start_run(bundle)
        wait_for(lambda: self._api.is_over(run), "the run", seconds)
        status = self._api.status(run)
        if status.status != "finished:completed":
            raise RuntimeError(f"the run of stock Flower is {status.status}: {status.details}")

    def _all_online(self) -> bool:
        return sum(node.is_online for node in self._api.nodes()) == self._nodes


def _pem(public: str) -> bytes:
    key = load_ssh_public_key(public.encode())
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
