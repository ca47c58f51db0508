"""`feddc lab bound`: Proposition 5 for one study, as a table, as JSON and as two figures."""

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from lab.bound import Bound, BoundError, Question, bound, draw


def show_bound(question: Question, *, figures: Path | None, json_output: bool) -> None:
    """Print the bound; draw the figures if a folder is given."""
    found = bound(question)
    try:
        drawn = draw(question, figures) if figures else []
    except OSError as error:
        raise typer.BadParameter(
            f"--figures {figures}: {error.strerror}: choose a writable folder"
        ) from error
    if json_output:
        typer.echo(json.dumps(asdict(found) | {"figures": [str(path) for path in drawn]}))
        return
    console = Console()
    console.print(_table(question, found))
    if found.aggregation_period is None:
        console.print(
            f"All {question.hospitals} hospitals together have "
            f"{question.hospitals * question.examples} examples, the guarantee needs "
            f"{found.examples_needed:.0f}: no aggregation period is long enough. Use a larger "
            "ε or δ, or more hospitals."
        )
    console.print(
        "The bound holds for convex risks, Radon points and n₀(ε, δ) = 1/ε · log 1/δ. "
        "Measurements: docs/when-it-helps.md."
    )
    for path in drawn:
        console.print(f"figure: {path}", soft_wrap=True)


def question_of(
    hospitals: int, examples: int, epsilon: float, delta: float, daisy_period: int
) -> Question:
    """Build the question from the options; wrong values are usage errors."""
    try:
        return Question(hospitals, examples, epsilon, delta, daisy_period)
    except BoundError as error:
        raise typer.BadParameter(str(error)) from error


def _table(question: Question, found: Bound) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = {
        "smallest aggregation period": _number(found.aggregation_period),
        "Proposition 5, as printed": f"b ≥ {_number(found.aggregation_period_bound)}",
        "with n₀(ε, δ)": f"b ≥ {_number(found.aggregation_period_bound_at_delta)} "
        "(as the paper's figures)",
        "examples a model must see": f"{found.examples_needed:.1f}",
        "hospitals it must visit": f"{found.hospitals_needed} of {question.hospitals}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    for count, rounds in found.rounds_to_visit.items():
        table.add_row(f"every chain at {count} hospitals", f"after {rounds:.1f} rounds (Lemma)")
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".removesuffix(".00")
