"""`feddc coordinator`: the commands of a study's coordinator."""

import typer

from operation.command_line.command import command_class, renamed_commands

from . import (
    codebook_commands,
    dashboard_commands,
    experiment_commands,
    export_model_command,
    service_commands,
    study_commands,
)

app = typer.Typer(no_args_is_help=True, cls=renamed_commands({"renew": "renew-certificate"}))


@app.callback()
def coordinator() -> None:
    """Coordinate a study: enrol hospitals, run experiments, watch and resume them."""


app.command(cls=command_class("feddc coordinator init --name heart --address fl.example.org:8443"))(
    study_commands.init
)
app.command(
    cls=command_class(
        "feddc coordinator enrol 'St Mary.hospital.json'", renamed={"--yes": "--fingerprint"}
    )
)(study_commands.enrol)
app.command(cls=command_class("feddc coordinator remove 'St Mary'"))(study_commands.remove)
app.command(cls=command_class("feddc coordinator roster"))(study_commands.roster)
app.command(cls=command_class("feddc coordinator codebook --from sample.csv --label diagnosis"))(
    codebook_commands.codebook
)
app.command(cls=command_class("feddc coordinator renew-certificate"))(
    study_commands.renew_certificate
)
app.command(cls=command_class("feddc coordinator up"))(service_commands.up)
app.command(cls=command_class("feddc coordinator down"))(service_commands.down)
app.command(cls=command_class("feddc coordinator run --set rounds=20 --set aggregation-period=10"))(
    experiment_commands.run
)
app.command(cls=command_class("feddc coordinator follow"))(experiment_commands.follow)
app.command(cls=command_class("feddc coordinator status --json"))(experiment_commands.status)
app.command(cls=command_class("feddc coordinator resume --detach"))(experiment_commands.resume)
app.command(cls=command_class("feddc coordinator stop"))(experiment_commands.stop)
app.command(cls=command_class("feddc coordinator dashboard --port 0"))(dashboard_commands.dashboard)
app.command(cls=command_class("feddc coordinator export --to for-others"))(
    export_model_command.export
)
