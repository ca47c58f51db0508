"""A Flower app whose ClientApp reports the process it runs in, or fails as it is asked to."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

client = ClientApp()
server = ServerApp()


@client.train()
def do(message: Message, context: Context) -> Message:
    asked = str(message.content["ask"]["what"])
    if asked == "raise":
        raise ValueError("as asked")
    if asked == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if asked == "hang":  # as with an agent that does not answer
        answers = Path(os.environ["FEDDC_TEST_ANSWERS"])
        answers.with_name("hanging").write_text(f"{os.getpid()}\n")
        one, _other = socket.socketpair()
        one.recv(1)
    report = {"pid": os.getpid(), "parent": os.getppid(), "torch": "torch" in sys.modules}
    return Message(RecordDict({"report": ConfigRecord(report)}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Ask a node one thing after the other; write down what it says."""
    node = int(str(context.run_config["node"]))
    while node not in grid.get_node_ids():
        time.sleep(0.2)
    answers = []
    for asked in str(context.run_config["asks"]).split():
        content = RecordDict({"ask": ConfigRecord({"what": asked})})
        message = Message(content, node, MessageType.TRAIN)
        (reply,) = grid.send_and_receive([message], timeout=600)
        answers.append(reply.error.code if reply.has_error() else dict(reply.content["report"]))
    Path(os.environ["FEDDC_TEST_ANSWERS"]).write_text(json.dumps(answers))
