"""`feddc hospital`: the commands of a hospital's IT and data people."""

import typer

from operation.command_line.command import EXAMPLE_ID, command_class, renamed_commands

from . import (
    agent_commands,
    check_command,
    enrolment_commands,
    experiment_commands,
    model_commands,
    privacy_commands,
)

app = typer.Typer(no_args_is_help=True, cls=renamed_commands({"forget": "`feddc hospital reset`"}))


@app.callback()
def hospital() -> None:
    """Take part in a study with your own data."""


app.command(cls=command_class("feddc hospital init --name 'St Mary'"))(enrolment_commands.init)
app.command(
    cls=command_class(
        "feddc hospital join for-hospitals/roster", renamed={"--yes": "--fingerprint"}
    )
)(enrolment_commands.join)
app.command(cls=command_class("feddc hospital card"))(enrolment_commands.card)
app.command("renew-transport-key", cls=command_class("feddc hospital renew-transport-key"))(
    enrolment_commands.renew_transport_key
)
app.command(cls=command_class("feddc hospital check"))(check_command.check)
app.command(cls=command_class("feddc hospital status --json"))(check_command.status)
app.command(cls=command_class("feddc hospital serve"))(agent_commands.serve)
app.command(cls=command_class("feddc hospital connect", renamed={"--through": "--via-socket"}))(
    agent_commands.connect
)
app.command(cls=command_class("feddc hospital experiments"))(experiment_commands.experiments)
app.command(cls=command_class(f"feddc hospital approve {EXAMPLE_ID}"))(experiment_commands.approve)
app.command(cls=command_class(f"feddc hospital reject {EXAMPLE_ID}"))(experiment_commands.reject)
app.command(cls=command_class("feddc hospital evaluate"))(model_commands.evaluate)
app.command(cls=command_class(f"feddc hospital predict {EXAMPLE_ID} new-patients.csv --csv"))(
    model_commands.predict
)
app.command(cls=command_class("feddc hospital audit"))(agent_commands.audit)
app.command(cls=command_class("feddc hospital ledger --json"))(privacy_commands.ledger)
app.command(cls=command_class("feddc hospital reset"))(agent_commands.reset)
