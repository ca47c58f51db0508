"""The names under which nodes seal models for each other, asked of their sealing mods."""

from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.exception import AggregationError

from protocol.sealing.sealed_arrays import NAME, RECIPIENT, RECORD, ROUND, SEALED_IN, name_request
from strategies.identifiers import NodeId

_TIMEOUT_SECONDS = 120.0


class Addresses:
    """Names by node; a node is asked once, when it first takes part."""

    def __init__(self) -> None:
        self._names: dict[NodeId, str] = {}

    def learn(self, nodes: Iterable[NodeId], grid: Grid) -> None:
        """Ask the nodes that are not known yet for their names."""
        unknown = [node for node in nodes if node not in self._names]
        requests = [
            Message(RecordDict({RECORD: name_request()}), node, MessageType.TRAIN)
            for node in unknown
        ]
        if not requests:
            return
        for reply in grid.send_and_receive(requests, timeout=_TIMEOUT_SECONDS):
            record = None if reply.has_error() else reply.content.config_records.get(RECORD)
            if record is not None:
                self._names[NodeId(reply.metadata.src_node_id)] = str(record[NAME])
        silent = [node for node in unknown if node not in self._names]
        if silent:
            raise AggregationError(
                f"node {silent[0]} gave no name to seal models for: its ClientApp needs "
                "mods=[sealing_mod], and its SuperNode the files feddc-key and feddc-roster"
            )
        names = list(self._names.values())
        if len(set(names)) < len(names):
            raise AggregationError("two nodes have the same name: each site needs its own key")

    def request(
        self, server_round: int, recipient: NodeId | None, sealed_in: int | None
    ) -> ConfigRecord:
        """Return the record sent with a node's model; no recipient: the model is aggregated."""
        name = "" if recipient is None else self._names[recipient]
        record = ConfigRecord({ROUND: server_round, RECIPIENT: name})
        if sealed_in is not None:
            record[SEALED_IN] = sealed_in
        return record
