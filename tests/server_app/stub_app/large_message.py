"""A Flower app that sends one large message to a SuperNode and gets it back, bit for bit."""

import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

BYTES = 45_000_000

client = ClientApp()
server = ServerApp()


@client.train()
def turn_round(message: Message, context: Context) -> Message:
    there = message.content["payload"]["bytes"].numpy()
    return Message(
        RecordDict({"payload": ArrayRecord({"bytes": Array(there[::-1].copy())})}), reply_to=message
    )


@server.main()
def main(grid: Grid, context: Context) -> None:
    while not list(grid.get_node_ids()):
        time.sleep(0.2)
    payload = np.random.default_rng(0).integers(0, 256, BYTES, dtype=np.uint8)
    message = Message(
        RecordDict({"payload": ArrayRecord({"bytes": Array(payload)})}),
        dst_node_id=next(iter(grid.get_node_ids())),
        message_type="train",
    )
    (reply,) = grid.send_and_receive([message], timeout=300)
    back = reply.content["payload"]["bytes"].numpy()
    told = {"bytes": back.size, "same": bool(np.array_equal(back[::-1], payload))}
    told["sha256"] = hashlib.sha256(back.tobytes()).hexdigest()
    (Path(os.environ["FEDDC_STUDY"]) / "large.json").write_text(json.dumps(told))
