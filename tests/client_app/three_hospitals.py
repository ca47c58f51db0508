"""Three small hospitals that make the keys of a sealed experiment, and their envelopes."""

from typing import Any

from protocol.message_bytes import decode_signed_reply
from protocol.messages import (
    Announcement,
    Carries,
    ExchangeKeyShares,
    KeyShares,
    OpenKeyShares,
    Ready,
    Reply,
)
from protocol.sealing.bundle import from_bundle, to_bundle
from tests.client_app.small_hospital import (
    NAMES,
    TRAINING,
    descriptor,
    leg,
    member,
    model,
    set_up,
    signed,
    trained,
)


class Study:
    """Three hospitals that have made the keys of a sealed experiment."""

    def __init__(self, *, schedule: dict[str, Any] | None = None, **chosen: Any) -> None:
        self.memories: dict[str, dict[str, bytes]] = {name: {} for name in NAMES}
        self.members = {name: member(name, self.memories[name]) for name in NAMES}
        agreed = descriptor(sealed=True, training=TRAINING | chosen, **(schedule or {}))
        self.announced = self.ask_all({name: set_up(agreed, name) for name in NAMES}, Announcement)
        request = ExchangeKeyShares(experiment="e1", payload=to_bundle(self.announced))
        shares = self.ask_all({name: signed(request, name) for name in NAMES}, KeyShares)
        self.sealed = {name: from_bundle(bundle) for name, bundle in shares.items()}

    def make_keys(self) -> "Study":
        requests = {
            name: signed(
                OpenKeyShares(experiment="e1", payload=to_bundle(self.shares_for(name))), name
            )
            for name in NAMES
        }
        self.tags = []
        for name, request in requests.items():
            reply = decode_signed_reply(self.members[name].answer(request))
            assert isinstance(reply, Ready)
            self.tags.append(reply.confirmation)
        return self

    def shares_for(self, name: str) -> dict[str, bytes]:
        return {sender: self.sealed[sender][name] for sender in NAMES if sender != name}

    def ask_all(self, requests: dict[str, bytes], kind: type[Reply]) -> dict[str, bytes]:
        replies = {
            name: decode_signed_reply(self.members[name].answer(r)) for name, r in requests.items()
        }
        assert all(isinstance(reply, kind) for reply in replies.values()), replies
        return {name: reply.payload for name, reply in replies.items()}

    def hand_over(self, sender: str, recipient: str, number: int = 1) -> bytes:
        """Have `sender` train leg `number` and return the envelope for `recipient`."""
        reply = trained(
            self.members[sender].answer(leg(model(), sender, leg=number, recipient=recipient))
        )
        assert reply.sealed
        return reply.payload


def envelope(payload: bytes, number: int = 2, **changes: Any) -> bytes:
    fields = {"leg": number, "first_round": 2, "carries": Carries.ENVELOPE, "sealed_in": 1}
    return leg(payload, **(fields | {"recipient": "south"} | changes))
