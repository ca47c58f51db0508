"""A SuperNode reduced to its messages: it activates itself, pulls requests and pushes replies.

The benchmarks run hundreds of them in one process.
"""

from collections.abc import Callable
from pathlib import Path

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.retry import make_simple_http_retry_invoker

from .fleet_client import connect, read_key
from .grid import set_message_id

_HEARTBEAT_SECONDS = 1800


class FleetNode:
    """A registered SuperNode's connection to the SuperLink."""

    def __init__(self, address: str, authority: bytes, key_file: Path) -> None:
        key = read_key(key_file)
        self._client = connect(
            address, authority, key, retry_invoker=make_simple_http_retry_invoker()
        )
        request = ActivateNodeRequest(
            public_key=public_key_to_bytes(key.public_key()),
            heartbeat_interval=_HEARTBEAT_SECONDS,
        )
        self._node = Node(node_id=self._client.ActivateNode(request).node_id)

    def next_message(self) -> Callable[[], Message] | None:
        """Return a function that fetches the next message, or None if there is none.

        Raises `httpx.HTTPError` if the SuperLink can't be reached.
        """
        response = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not response.messages_list:
            return None
        run = response.messages_list[0].metadata.run_id
        return lambda: self._fetch(response.message_object_trees[0], run)

    def _fetch(self, tree: ObjectTree, run: int) -> Message:
        message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(self._client.PullObject, self._node, run),
            make_confirm_message_received_fn_protobuf(
                self._client.ConfirmMessageReceived, self._node, run
            ),
            return_type=Message,
        )
        set_message_id(message, tree.object_id)
        return message

    def push(self, reply: Message) -> None:
        """Send a reply."""
        set_message_id(reply, reply.object_id)
        with no_object_id_recompute():
            request = PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
            wanted = self._client.PushMessages(request)
            push_objects(
                get_all_nested_objects(reply),
                make_push_object_fn_protobuf(
                    self._client.PushObject,
                    self._node,
                    reply.metadata.run_id,
                    wanted.session_id,
                ),
                object_ids_to_push=set(wanted.objects_to_push),
            )
