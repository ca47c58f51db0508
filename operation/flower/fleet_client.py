"""A client of the SuperLink's Fleet API that signs its requests with a SuperNode's key."""

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient as FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor


def read_key(file: Path) -> EllipticCurvePrivateKey:
    """Read a SuperNode's private key."""
    key = load_ssh_private_key(file.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)  # noqa: S101 (made by `feddc hospital init`)
    return key


def connect(
    address: str, authority: bytes, key: EllipticCurvePrivateKey, **options: Any
) -> FleetHttpClient:
    """Connect to a SuperLink whose certificate `authority` (PEM) signed."""
    return FleetHttpClient.from_server_address(
        address,
        insecure=False,
        root_certificates=authority,
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(key, key.public_key()),
        ],
        **options,
    )
