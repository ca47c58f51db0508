"""`feddc coordinator dashboard`: a page over the study's experiments."""

from typing import TYPE_CHECKING, Annotated

import typer

from operation.terminal import echo

from .shared import DEFAULT_FOLDER, Folder, exit_on_experiment_error, open_study

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from server_app.study.study_folder import Study

DEFAULT_PORT = 8790
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any that is free.")
]


def dashboard(study: Folder = DEFAULT_FOLDER, port: Port = DEFAULT_PORT) -> None:
    """Show the study's experiments on a page of this machine, while they run."""
    with exit_on_experiment_error():
        place = open_study(study)
        place.experiments.mkdir(mode=0o700, exist_ok=True)
        serve_dashboard(place.experiments, f"FedDC: {place.name}", port, _online(place))


def serve_dashboard(
    folder: "Path", title: str, port: int, online: "Callable[[], dict[str, bool]] | None" = None
) -> None:
    """Serve the runs of a folder until Ctrl-C; print the address first."""
    from server_app.pages.dashboard import listen, serve, stored_token
    from server_app.pages.watched_runs import WatchedRuns

    token = stored_token(folder)
    with listen(port) as sock:
        address = f"http://127.0.0.1:{sock.getsockname()[1]}"
        echo(f"Dashboard: {address}/?token={token}")
        echo(
            f"Prometheus: {address}/metrics, with the token as bearer credentials. Ctrl-C ends it."
        )
        serve(WatchedRuns(folder, online), title=title, token=token, sock=sock)


def _online(study: "Study") -> "Callable[[], dict[str, bool]]":
    """Return a function that says which hospitals are connected; nothing if it is unknown."""
    import time

    from operation.flower.control_api import RequestError
    from server_app.study.registration import NotUp, control

    asked, known = 0.0, dict[str, bool]()

    def online() -> dict[str, bool]:
        nonlocal asked, known
        if time.monotonic() - asked > 5:
            asked = time.monotonic()
            try:
                known = {node.name: node.is_online for node in control(study).nodes()}
            except (NotUp, RequestError):
                known = {}
        return known

    return online
