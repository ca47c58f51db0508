"""`feddc hospital`: the commands of a hospital's IT and data people."""

import typer

from operation.renames import renamed_commands, renamed_options

from . import agent_commands, check_command, enrolment_commands, experiment_commands, model_commands

app = typer.Typer(no_args_is_help=True, cls=renamed_commands({"forget": "`feddc hospital reset`"}))


@app.callback()
def hospital() -> None:
    """Take part in a study with your own data."""


app.command()(enrolment_commands.init)
app.command(cls=renamed_options({"--yes": "--fingerprint"}))(enrolment_commands.join)
app.command("renew-transport-key")(enrolment_commands.renew_transport_key)
app.command()(check_command.check)
app.command()(check_command.status)
app.command()(agent_commands.serve)
app.command(cls=renamed_options({"--through": "--via-socket"}))(agent_commands.connect)
app.command()(experiment_commands.experiments)
app.command()(experiment_commands.approve)
app.command()(experiment_commands.reject)
app.command()(model_commands.evaluate)
app.command()(model_commands.predict)
app.command()(agent_commands.audit)
app.command()(agent_commands.reset)
