"""`feddc lab plan`: Proposition 5 for one study, as a table, as JSON and as two figures."""

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from lab.bound import Answer, PlanError, Question, draw, plan


def show_plan(question: Question, *, figures: Path | None, json_output: bool) -> None:
    """Print the answer; draw the figures if a folder is given."""
    answer = plan(question)
    try:
        drawn = draw(question, figures) if figures else []
    except OSError as error:
        raise typer.BadParameter(
            f"--figures {figures}: {error.strerror}: choose a folder that can be written"
        ) from error
    if json_output:
        typer.echo(json.dumps(asdict(answer) | {"figures": [str(path) for path in drawn]}))
        return
    console = Console()
    console.print(_table(question, answer))
    if answer.aggregation_period is None:
        console.print(
            f"All {question.hospitals} hospitals together have "
            f"{question.hospitals * question.examples} examples, the guarantee needs "
            f"{answer.examples_needed:.0f}: no aggregation period is long enough. Allow a larger "
            "ε or δ, or find more hospitals."
        )
    console.print(
        "This is the theory, for convex risks, Radon points and n₀(ε, δ) = 1/ε · log 1/δ. "
        "docs/when-it-helps.md says what was measured."
    )
    for path in drawn:
        console.print(f"figure: {path}", soft_wrap=True)


def question_of(
    hospitals: int, examples: int, epsilon: float, delta: float, daisy_period: int
) -> Question:
    """Check the options; what is wrong is said in one line."""
    try:
        return Question(hospitals, examples, epsilon, delta, daisy_period)
    except PlanError as error:
        raise typer.BadParameter(str(error)) from error


def _table(question: Question, answer: Answer) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = {
        "smallest aggregation period": _number(answer.aggregation_period),
        "Proposition 5, as printed": f"b ≥ {_number(answer.aggregation_period_bound)}",
        "with n₀(ε, δ)": f"b ≥ {_number(answer.aggregation_period_bound_at_delta)} "
        "(as the paper's figures)",
        "examples a model must see": f"{answer.examples_needed:.1f}",
        "hospitals it must visit": f"{answer.hospitals_needed} of {question.hospitals}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    for count, rounds in answer.rounds_to_visit.items():
        table.add_row(f"every chain at {count} hospitals", f"after {rounds:.1f} rounds (Lemma)")
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".removesuffix(".00")
