"""A ServerApp that leaves behind what the real one does, after two legs without any learning.

The environment variable STUB says how it goes: completed, raises, or waits for ever.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()
LEGS = ("hand-over", "aggregation")


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["run-dir"]))
    hospitals = int(context.run_config["hospitals"])

    def write(event: str, **fields: Any) -> None:
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")

    while len(nodes := list(grid.get_node_ids())) < hospitals:
        time.sleep(0.05)
    write("start", legs=2, rounds=2, hospitals=[str(node) for node in nodes])
    print("the stub is running")  # noqa: T201 (a line for Flower's log)
    if os.environ["STUB"] == "raises":
        raise RuntimeError("the stub was told\nto raise")
    for number, ending in enumerate(LEGS, start=1):
        answered = _ask_all(grid, nodes)
        write("leg", leg=number, ending=ending, asked=hospitals, answered=answered, loss=0.5)
    write("evaluation", leg=2, test_accuracy=0.75, test_loss=0.25)
    while os.environ["STUB"] == "waits":
        time.sleep(1)
    summary = {"run_dir": str(folder), "test_accuracy": 0.75, "mean_client_accuracy": 0.5}
    summary |= {"legs": 2, "hand_overs": 1, "aggregations": 1, "bytes_up": 1500, "bytes_down": 15}
    summary |= {"sealed": False, "seconds": 1.5, "missing": {}}
    (folder / "summary.json").write_text(json.dumps(summary))
    write("end", status="completed", reason="")


def _ask_all(grid: Grid, nodes: list[int]) -> int:
    messages = [Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes]
    ids = list(grid.push_messages(messages))
    answers = 0
    while answers < len(ids):
        answers += sum(not reply.has_error() for reply in grid.pull_messages(ids))
        time.sleep(0.02)
    return answers
