"""Report to a SuperLink that a SuperNode was killed.

    python -m operation.flower.deactivate_node ADDRESS CA KEY NODE

For a minute a SuperLink takes a killed SuperNode for connected: it rejects the successor and keeps
the coordinator waiting. Once deactivated, the node counts as missing and may connect again at once.
"""

import sys
from pathlib import Path

from flwr.proto.fleet_pb2 import DeactivateNodeRequest

from .fleet_client import connect, read_key


def main() -> None:
    """Deactivate the node."""
    address, authority, key, node = sys.argv[1:]
    with connect(address, Path(authority).read_bytes(), read_key(Path(key))) as client:
        client.DeactivateNode(DeactivateNodeRequest(node_id=int(node)))


if __name__ == "__main__":
    main()
