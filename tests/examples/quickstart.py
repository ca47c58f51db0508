"""The example `quickstart-pytorch`, and what Algorithm 1 makes of its task."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp

from protocol.randomness import derive_seed
from tests.strategies.plain.algorithm_one import Model, daisy_chaining

FOLDER = Path(__file__).parents[2] / "examples" / "quickstart-pytorch"
LEARNING_RATE, BATCH, SEED = 0.5, 8, 1
CONFIG = {"learning-rate": LEARNING_RATE, "batch-size": BATCH, "seed": SEED, "local-epochs": 1}
TRAIN_CONFIG = ConfigRecord({"lr": LEARNING_RATE})


def client_app() -> ClientApp:
    from pytorchexample.client_app import app

    return app


def first_model() -> Model:
    """Return the model that the example's ServerApp starts from."""
    from pytorchexample.task import Net

    torch.manual_seed(SEED)
    return {name: value.numpy() for name, value in Net().state_dict().items()}


def algorithm_one(partitions: Sequence[int], *, rounds: int, d: int | None, b: int) -> Model:
    """Return the last aggregate of Algorithm 1; `partitions` are the data of the nodes in order."""
    from pytorchexample.task import EXAMPLES_PER_NODE, Net, load_data, train

    def local_update(node: int, model: Model) -> Model:
        net = Net()
        net.load_state_dict({name: torch.tensor(array) for name, array in model.items()})
        examples, _ = load_data(partitions[node], len(partitions), BATCH)
        train(net, examples, 1, LEARNING_RATE, torch.device("cpu"))
        return {name: value.numpy() for name, value in net.state_dict().items()}

    nodes = list(range(len(partitions)))
    return daisy_chaining(
        local_update,
        first_model(),
        rounds=rounds,
        d=d,
        b=b,
        route_seed=derive_seed(SEED, "route"),
        weights=dict.fromkeys(nodes, EXAMPLES_PER_NODE),
        nodes_after={0: nodes},
    )


def is_close(one: Model, other: Model) -> bool:
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], rtol=1e-5, atol=1e-6) for name in one
    )
