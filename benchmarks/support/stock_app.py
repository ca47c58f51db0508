"""A Flower app as in its tutorials: FedAvg, and a ClientApp that imports torch."""

import os
import time
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

FEATURES, CLASSES = 10, 2
TIMES_VARIABLE = "FEDDC_BENCHMARK_TIMES"

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    model = torch.nn.Linear(FEATURES, CLASSES)
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)  # noqa: S101 (from the server below)
    model.load_state_dict(arrays.to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.functional.cross_entropy(model(torch.randn(8, FEATURES)), torch.zeros(8).long())
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    metrics = MetricRecord({"num-examples": 8})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds and record when each has ended."""
    nodes = int(context.run_config["nodes"])
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(
        grid,
        ArrayRecord(torch.nn.Linear(FEATURES, CLASSES).state_dict()),
        num_rounds=int(context.run_config["rounds"]),
        evaluate_fn=_note,
    )


def _note(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
    with Path(os.environ[TIMES_VARIABLE]).open("a") as file:
        file.write(f"{server_round} {time.time()}\n")
    return None
