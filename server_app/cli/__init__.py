"""`feddc coordinator`: the commands of a study's coordinator."""

import typer

from operation.renames import renamed_commands, renamed_options

from . import (
    codebook_commands,
    dashboard_commands,
    experiment_commands,
    export_command,
    service_commands,
    study_commands,
)

app = typer.Typer(no_args_is_help=True, cls=renamed_commands({"renew": "renew-certificate"}))


@app.callback()
def coordinator() -> None:
    """Coordinate a study: enrol hospitals, run experiments, watch and resume them."""


app.command()(study_commands.init)
app.command(cls=renamed_options({"--yes": "--fingerprint"}))(study_commands.enrol)
app.command()(study_commands.remove)
app.command()(study_commands.roster)
app.command()(codebook_commands.codebook)
app.command()(study_commands.renew_certificate)
app.command()(service_commands.up)
app.command()(service_commands.down)
app.command()(experiment_commands.run)
app.command()(experiment_commands.follow)
app.command()(experiment_commands.status)
app.command()(experiment_commands.resume)
app.command()(experiment_commands.stop)
app.command()(dashboard_commands.dashboard)
app.command()(export_command.export)
