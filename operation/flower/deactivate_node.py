"""Tell a SuperLink that a SuperNode was killed.

    python -m operation.flower.deactivate_node ADDRESS CA KEY NODE

A SuperLink believes for a minute that a killed SuperNode is still there, turns its successor away
and keeps the coordinator waiting. Signed off, it is missed at once and may come back at once. These
modules are not Flower's public interface: flwr is pinned, and a test notices when they move.
"""

import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor


def main() -> None:
    """Tell the SuperLink that the node is gone."""
    address, authority, key_file, node = sys.argv[1:]
    key = load_ssh_private_key(Path(key_file).read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)  # noqa: S101 (made by `init`)
    with FleetHttpClient.from_server_address(
        address,
        insecure=False,
        root_certificates=authority,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ],
    ) as client:
        client.DeactivateNode(DeactivateNodeRequest(node_id=int(node)))


if __name__ == "__main__":
    main()
