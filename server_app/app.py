"""The ServerApp: runs an experiment with a study's hospitals, or with simulated ones."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

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

        run(grid, Settings.from_run_config(config, source="run config"))
