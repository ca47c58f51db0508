"""Stand-ins for hospitals, many in one process, which communicate but do not train.

    python -m benchmarks.support.stand_in_fleet ADDRESS AUTHORITY KEYS ENVELOPE-BYTES DELIVERED

Each has a SuperNode's key and a hospital's identity, uses Flower's Fleet API through the
coordinator's proxy and replies as a hospital would, but does not train: its envelopes are random
bytes, which the coordinator can't distinguish from others. All of them wait for messages; a few at
a time handle one. An aggregation is not answered: by then the envelopes have been handed over. The
file DELIVERED gets one byte for each delivered envelope.
"""

import hashlib
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from flwr.app import Message

from operation.flower.fleet_node import FleetNode
from protocol.message_bytes import decode_signed_request, sign_reply
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
    Request,
    SetUp,
    Trained,
    TrainLeg,
)
from protocol.records import from_records, to_records
from protocol.sealing.bundle import from_bundle, to_bundle
from protocol.sealing.keys import SEALING_KEY_BYTES, SIGNATURE_BYTES, Identity
from protocol.sealing.membership import SEALED_KEY_SHARE_BYTES

AT_A_TIME = 2
_SLEEP_SECONDS = 3.0  # like a SuperNode that received no message
_ANNOUNCEMENT_BYTES = SEALING_KEY_BYTES + SIGNATURE_BYTES
_KEY_SHARE = bytes(SEALED_KEY_SHARE_BYTES)


@dataclass(frozen=True)
class StandIn:
    """A hospital that replies without training."""

    hospital: str
    identity: Identity
    envelope_bytes: int
    delivered: Path

    def answer(self, data: bytes) -> bytes | None:
        """Return the signed reply to a request; None to leave it unanswered."""
        request = decode_signed_request(data)
        reply = self._reply(request)
        if reply is None:
            return None
        return sign_reply(
            reply,
            self.identity,
            study=request.study,
            hospital=self.hospital,
            request=hashlib.sha256(data).digest(),
        )

    def _reply(self, request: Request) -> Reply | None:
        match request:
            case Hello():
                return Introduction(hospital=self.hospital)
            case SetUp():
                return Announcement(examples=10, payload=os.urandom(_ANNOUNCEMENT_BYTES))
            case ExchangeKeyShares(payload=announced):
                others = from_bundle(announced).keys() - {self.hospital}
                return KeyShares(payload=to_bundle(dict.fromkeys(others, _KEY_SHARE)))
            case OpenKeyShares():
                return Ready(confirmation="0" * 64)
            case TrainLeg():
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


def serve(hospital: StandIn, node: FleetNode, places: threading.Semaphore) -> None:
    """Answer messages one after another, forever."""
    while True:
        try:
            fetch = node.next_message()
        except httpx.HTTPError:
            fetch = None
        if fetch is None:
            time.sleep(_SLEEP_SECONDS)
            continue
        with places:
            message = fetch()
            reply = hospital.answer(from_records(message.content))
            if reply is not None:
                node.push(Message(to_records(reply), reply_to=message))
            del message, reply


def main() -> None:
    address, authority, keys, envelope_bytes, delivered = sys.argv[1:]
    certificate = Path(authority).read_bytes()
    places = threading.Semaphore(AT_A_TIME)
    for key_file in sorted(Path(keys).glob("*.key")):
        node = FleetNode(address, certificate, key_file)
        identity = Identity.from_bytes(key_file.with_suffix(".identity").read_bytes())
        hospital = StandIn(key_file.stem, identity, int(envelope_bytes), Path(delivered))
        threading.Thread(target=serve, args=(hospital, node, places), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
