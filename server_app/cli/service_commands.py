"""`feddc coordinator up` and `down`: the services that hospitals connect to."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from operation.terminal import activity, echo, fail

from .shared import DEFAULT_FOLDER, Folder, exit_on_study_error, open_study, register_if_up

if TYPE_CHECKING:
    from server_app.services.supervisor import Part
    from server_app.study.study_folder import Study


def up(
    study: Folder = DEFAULT_FOLDER,
    foreground: Annotated[
        bool,
        typer.Option("--foreground", help="Stay in the foreground and show the log (containers)."),
    ] = False,
    only: Annotated[
        Literal["superlink", "proxy"] | None,
        typer.Option(help="Start only this service; the other has its own container."),
    ] = None,
) -> None:
    """Start the SuperLink and the proxy that hospitals connect to."""
    from server_app.services import background
    from server_app.services.supervisor import PARTS, serve
    from server_app.study import certificates

    parts: tuple[Part, ...] = PARTS if only is None else (only,)
    with exit_on_study_error():
        place = open_study(study)
        _renew_if_needed(place)
        if warning := certificates.expiry_warning(place.tls, background.served_certificate(place)):
            echo(f"Warning: {warning}.", err=True)
        if foreground:
            number = serve(place, parts, terminal=True)
            raise typer.Exit(0 if number else 1)
        if background.running(place):
            with activity("waiting until the services answer"):
                background.wait_until_it_answers(place, parts)
            echo("The coordinator is already up.")
        else:
            with activity(f"starting {' and '.join(parts)}"):
                background.start(place, parts)
            echo(f"The coordinator is up: hospitals connect to {place.address}.")
        if "superlink" in parts:
            register_if_up(place)


def down(study: Folder = DEFAULT_FOLDER) -> None:
    """Stop the SuperLink and the proxy; a running experiment can be resumed later."""
    from server_app.services import background
    from server_app.services.database_erasure import erase_stopped

    with exit_on_study_error():
        place = open_study(study)
        with activity("stopping the services"):
            was_up = background.stop(place)
            # The supervisor has done so, unless it was killed.
            problem = erase_stopped(place.database)
    if problem:
        fail(1, problem)
    echo("The coordinator is down." if was_up else "The coordinator was not up.")


def _renew_if_needed(study: "Study") -> None:
    from server_app.study import certificates

    if reason := certificates.why_renew(study.tls, study.address.host):
        certificates.make_server_certificate(study.tls, study.address.host)
        echo(f"Renewed the server's certificate: {reason}.")
