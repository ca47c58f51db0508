"""The ServerApp: runs an experiment with a study's hospitals, or with simulated ones."""

from logging import INFO

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from operation.flower.logger import log
from server_app.config.run_config import Settings

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the run configuration names, or simulate the one it describes."""
    config = dict(context.run_config)
    experiment = config.pop("experiment", "")
    # Imported when needed: a run with real hospitals has no torch in this process.
    if experiment:
        from server_app.run.deployed_run import run_experiment

        run_experiment(grid, str(experiment))
    else:
        from server_app.run.simulated_run import run

        summary = run(grid, Settings.from_run_config(config, source="run config"))
        # For `flwr run`, which shows this log and nothing else.
        if summary["test_accuracy"] is not None:
            accuracy = 100 * summary["test_accuracy"]
            log(INFO, "Test accuracy of the final aggregate: %.1f %%", accuracy)
        log(INFO, "Results are in %s", summary["run_dir"])
