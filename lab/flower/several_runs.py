"""A ServerApp that runs several experiments in turn, with the same simulated hospitals.

Flower and Ray take much longer to start than a small experiment does to run.
"""

import json

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from server_app.config.run_config import Settings

RUNS = "runs"

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run each experiment of the run configuration's list; every one has its own run folder."""
    from server_app.run.simulated_run import run

    config = dict(context.run_config)
    for changes in json.loads(str(config.pop(RUNS))):
        run(grid, Settings.from_run_config(config | changes, source="run config"))
