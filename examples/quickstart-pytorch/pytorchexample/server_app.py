"""The ServerApp of Flower's PyTorch quickstart, with FedDC around its strategy."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import save_file

from feddc import FedDC
from pytorchexample.task import Net, load_test_data, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the federation and save its model."""
    config = context.run_config
    torch.manual_seed(config["seed"])
    arrays = ArrayRecord(Net().state_dict())

    strategy = FedDC(
        FedAvg(),
        daisy_period=config["daisy-period"] or None,
        aggregation_period=config["aggregation-period"],
        seed=config["seed"],
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        num_rounds=config["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )

    save_file(result.arrays.to_torch_state_dict(), config["model-file"])
    accuracy = list(result.evaluate_metrics_serverapp.values())[-1]["accuracy"]
    print(f"Accuracy of the final model: {100 * accuracy:.1f} %")


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate an aggregate on the server's examples."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model, load_test_data(), torch.device("cpu"))
    return MetricRecord({"accuracy": accuracy, "loss": loss})
