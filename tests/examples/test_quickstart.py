"""The quickstart's untouched ClientApp under FedDC equals Algorithm 1."""

from pathlib import Path

import pytest
from flwr.app import Array, ArrayRecord, Context, RecordDict
from flwr.serverapp.strategy import FedAvg
from safetensors.numpy import load_file

from feddc import FedDC
from lab.flower.in_process import InProcessGrid
from tests.examples.quickstart import (
    CONFIG,
    SEED,
    TRAIN_CONFIG,
    algorithm_one,
    client_app,
    first_model,
    is_close,
)

NODES = 5


@pytest.mark.parametrize(("d", "b"), [(1, 3), (2, 5), (None, 2)])
def test_it_is_algorithm_one_in_process(d: int | None, b: int) -> None:
    strategy = FedDC(FedAvg(), daisy_period=d, aggregation_period=b, seed=SEED)
    arrays = ArrayRecord({name: Array(array) for name, array in first_model().items()})
    result = strategy.start(
        InProcessGrid(client_app(), NODES, CONFIG), arrays, 7, train_config=TRAIN_CONFIG
    )
    found = {name: array.numpy() for name, array in result.arrays.items()}
    assert is_close(found, algorithm_one(range(NODES), rounds=7, d=d, b=b))
    # Hand-overs make a difference here, so that the comparison above can fail.
    assert not is_close(found, algorithm_one(range(NODES), rounds=7, d=None if d else 1, b=b))


def test_its_server_app_learns_and_saves_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pytorchexample.server_app import app

    config = CONFIG | {"num-server-rounds": 30, "daisy-period": 1, "aggregation-period": 10}
    config["model-file"] = str(tmp_path / "model.safetensors")
    context = Context(1, 1, {}, RecordDict(), config)
    app(InProcessGrid(client_app(), 10, CONFIG), context)
    saved = load_file(config["model-file"])
    assert is_close(saved, algorithm_one(range(10), rounds=30, d=1, b=10))
    printed = capsys.readouterr().out
    accuracy = float(printed.rpartition("final model: ")[2].rstrip("%\n"))
    assert accuracy > 40  # chance is 10
