"""Hospitals that only talk: more than a machine has room for, in one process.

    python -m benchmarks.stand_in_fleet ADDRESS AUTHORITY KEYS ENVELOPE-BYTES DELIVERED

Each has a SuperNode's key, speaks Flower's Fleet API through the coordinator's proxy and answers as
a hospital would, but trains nothing: its envelopes are random bytes, which the coordinator can't
tell from others. All of them wait for messages; a few at a time handle one. An aggregation is left
unanswered: by then the envelopes have been handed over. DELIVERED counts, a byte each, those that
have arrived. The modules of Flower used here are not its public interface; see client_app/sign_off.
"""

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
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
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from protocol.bundle import from_bundle, to_bundle
from protocol.messages import (
    Announcement,
    Carries,
    ExchangeKeyShares,
    Hello,
    Introduction,
    KeyShares,
    OpenKeyShares,
    Ready,
    Reply,
    SetUp,
    Trained,
    TrainLeg,
    decode_signed_request,
    encode,
)
from protocol.records import from_records, to_records

AT_A_TIME = 2
_SLEEP_SECONDS = 3.0  # as a SuperNode that was told there is no message
_HEARTBEAT_SECONDS = 1800
_KEY_SHARE = bytes(48)


@dataclass(frozen=True)
class Answers:
    """What the hospitals say."""

    envelope_bytes: int
    delivered: Path

    def to(self, hospital: str, data: bytes) -> Reply | None:
        """Answer a request, or don't."""
        match decode_signed_request(data):
            case Hello():
                return Introduction(hospital=hospital)
            case SetUp():
                return Announcement(examples=10, payload=os.urandom(64))
            case ExchangeKeyShares(payload=announced):
                others = from_bundle(announced).keys() - {hospital}
                return KeyShares(payload=to_bundle(dict.fromkeys(others, _KEY_SHARE)))
            case OpenKeyShares():
                return Ready(confirmation="0" * 64)
            case TrainLeg() as request:
                return self._train(request)
            case _:
                return None

    def _train(self, request: TrainLeg) -> Reply | None:
        if request.carries is Carries.ENVELOPE:
            if len(request.payload) != self.envelope_bytes:
                sys.exit("an envelope did not arrive as it was sent")
            with self.delivered.open("ab") as file:
                file.write(b".")
        if request.recipient is None:
            return None
        return Trained(
            leg=request.leg,
            sealed=True,
            loss=0.5,
            accuracy=0.5,
            held_out_loss=None,
            held_out_accuracy=None,
            payload=os.urandom(self.envelope_bytes),
        )


class Connection:
    """One hospital's way to the coordinator, and what a SuperNode does there."""

    def __init__(self, address: str, authority: bytes, key_file: Path) -> None:
        self.hospital = key_file.stem
        key = load_ssh_private_key(key_file.read_bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)  # noqa: S101 (made by the benchmark)
        self._client = FleetHttpClient.from_server_address(
            address,
            insecure=False,
            root_certificates=authority,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
            ],
            retry_invoker=make_simple_http_retry_invoker(),
        )
        public = public_key_to_bytes(key.public_key())
        request = ActivateNodeRequest(public_key=public, heartbeat_interval=_HEARTBEAT_SECONDS)
        self._node = Node(node_id=self._client.ActivateNode(request).node_id)

    def serve(self, answers: Answers, places: threading.Semaphore) -> None:
        """Answer one message after the other, for ever."""
        while True:
            try:
                response = self._client.PullMessages(PullMessagesRequest(node=self._node))
            except httpx.HTTPError:
                time.sleep(_SLEEP_SECONDS)
                continue
            if not response.messages_list:
                time.sleep(_SLEEP_SECONDS)
                continue
            run = response.messages_list[0].metadata.run_id
            with places:
                message = self._fetch(response.message_object_trees[0], run)
                reply = answers.to(self.hospital, from_records(message.content))
                if reply is not None:
                    self._push(Message(to_records(encode(reply)), reply_to=message), run)
                del message, reply

    def _fetch(self, tree: ObjectTree, run: int) -> Message:
        message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(self._client.PullObject, self._node, run),
            make_confirm_message_received_fn_protobuf(
                self._client.ConfirmMessageReceived, self._node, run
            ),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def _push(self, reply: Message, run: int) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
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
                    self._client.PushObject, self._node, run, wanted.session_id
                ),
                object_ids_to_push=set(wanted.objects_to_push),
            )


def main() -> None:
    address, authority, keys, envelope_bytes, delivered = sys.argv[1:]
    answers = Answers(int(envelope_bytes), Path(delivered))
    certificate = Path(authority).read_bytes()
    places = threading.Semaphore(AT_A_TIME)
    for key_file in sorted(Path(keys).glob("*.key")):
        connection = Connection(address, certificate, key_file)
        threading.Thread(target=connection.serve, args=(answers, places), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
