"""What a `Grid` outside Flower's runtime needs: the type of its run, and ids for messages."""

from abc import ABC

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run as Run
from flwr.supercore.task_identity import TaskIdentity


class MessageMaker(Grid, ABC):
    """A Grid that makes messages as Flower's own do; the rest is its subclass's."""

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)


def set_task_identity(*, run_id: int, node_id: int, task_id: int) -> None:
    """Set the identity that Flower writes into every message made in this process."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, node_id, task_id


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message its id; Flower's runtime does this when the message is sent."""
    message.metadata.__dict__["_message_id"] = message_id
