"""The courier: Flower's ClientApp, which carries requests to the hospital and replies back.

The coordinator ships this code, so it is untrusted: it sees only sealed or signed bytes, and
imports neither torch nor anything that holds data or keys. Flower may import it anew for every
message, so it imports as little as possible.
"""

from importlib import import_module
from typing import Protocol, cast

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from client_app.connect.agent_client import ask
from protocol.records import from_records, to_records

_SOCKET, _POSITION = "agent-socket", "partition-id"
_SIMULATED = "client_app.simulated_hospital"  # loaded by name: it imports torch

app = ClientApp()


class _Hospital(Protocol):
    def answer(self, data: bytes, context: Context) -> bytes: ...


@app.train()
def carry(message: Message, context: Context) -> Message:
    """Carry one request to the hospital and its reply back."""
    request = from_records(message.content)
    if _SOCKET in context.node_config:
        reply = ask(str(context.node_config[_SOCKET]), request)
    elif _POSITION in context.node_config:
        reply = cast(_Hospital, import_module(_SIMULATED)).answer(request, context)
    else:
        raise RuntimeError(
            f"no hospital configured for this node: set {_SOCKET} (path of the agent's socket) or "
            f"{_POSITION} (simulation) in its node config"
        )
    return Message(to_records(reply), reply_to=message)
