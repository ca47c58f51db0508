"""`feddc lab`: the researcher's commands."""

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def lab() -> None:
    """Compare methods on one machine."""


@app.command()
def demo(
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Compare daisy-chaining with the alternatives, in a few minutes."""
    from lab.demo import demo as run  # imports torch

    raise typer.Exit(run(json_output=json_output))
