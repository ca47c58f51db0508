"""The courier: Flower's ClientApp, which carries requests to the hospital and replies back.

The coordinator ships this code, so it is trusted with nothing: it sees bytes it can't read, and
imports neither torch nor anything that holds data or keys. Every leg waits for a new Python to
import it, so it imports next to nothing.
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
            f"this node leads to no hospital: its node config has neither {_SOCKET} (the path of "
            f"an agent's socket) nor {_POSITION} (a simulated hospital)"
        )
    return Message(to_records(reply), reply_to=message)
