"""`feddc lab`: the researcher's commands."""

from pathlib import Path
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


@app.command()
def plan(
    hospitals: Annotated[int, typer.Option(help="Members of the study, m.")],
    samples: Annotated[int, typer.Option(help="Training examples of each, n.")],
    epsilon: Annotated[float, typer.Option(help="Largest error ε that is accepted.")] = 0.05,
    delta: Annotated[float, typer.Option(help="Probability δ that it is larger.")] = 0.01,
    daisy_period: Annotated[int, typer.Option(help="Rounds between hand-overs, d.")] = 1,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the two figures of the analysis.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Find the smallest aggregation period that Proposition 5 of the paper asks for."""
    from lab.plan_command import question_of, show_plan  # imports matplotlib

    question = question_of(hospitals, samples, epsilon, delta, daisy_period)
    show_plan(question, figures=figures, json_output=json_output)


@app.command()
def data(
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Show which data sets are there and intact, and where to get the others."""
    from lab.data_command import show_data  # imports scikit-learn

    show_data(json_output=json_output)
