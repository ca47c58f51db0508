"""The courier: Flower's ClientApp, which carries requests to the hospital and replies back.

The coordinator ships this code, so it is trusted with nothing: it sees bytes it can't read, and
imports neither torch nor anything that holds data or keys.
"""

from importlib import import_module
from typing import Protocol, cast

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from protocol.records import from_records, to_records

_SIMULATED = "client_app.simulated"  # loaded by name: it imports torch

app = ClientApp()


class _Hospital(Protocol):
    def answer(self, data: bytes, context: Context) -> bytes: ...


@app.train()
def carry(message: Message, context: Context) -> Message:
    """Carry one request to the hospital and its reply back."""
    if "partition-id" not in context.node_config:
        raise RuntimeError("this node is no simulated hospital: node config has no partition-id")
    hospital = cast(_Hospital, import_module(_SIMULATED))
    reply = hospital.answer(from_records(message.content), context)
    return Message(to_records(reply), reply_to=message)
