"""`feddc lab bound`: Proposition 5 for one study, as a table, as JSON and as two figures."""

import json
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from lab.bound import Bound, BoundError, Question, bound
from lab.results.plots.bound_plot import draw_bounds
from operation.terminal import activity


def show_bound(question: Question, *, figures: Path | None, json_output: bool) -> None:
    """Print the bound; draw the figures if a folder is given."""
    try:
        with activity("simulating chains", quiet=json_output):
            found = bound(question)
            drawn = draw_bounds(question, figures) if figures else []
    except OSError as error:
        raise typer.BadParameter(
            f"--figures {figures}: {error.strerror}: choose a writable folder"
        ) from error
    if json_output:
        typer.echo(json.dumps(asdict(found) | {"figures": [str(path) for path in drawn]}))
        return
    console = Console()
    console.print(_table(question, found))
    if found.rounds is None:
        console.print(
            f"All {question.hospitals} hospitals together have "
            f"{question.hospitals * (question.examples or 0)} examples, the guarantee needs "
            f"{found.examples_needed:.0f}: no aggregation period is long enough. Use a larger "
            "ε or δ, or more hospitals."
        )
    for condition in found.conditions:
        console.print(f"{'met' if condition.met else 'NOT MET'}: {condition.text}", markup=False)
    console.print(
        "The proposition is for convex risks, Radon points and n₀(ε, δ) = 1/ε · log 1/δ. Its Lemma "
        "is wrong: docs/chains.md. Measurements: docs/when-it-helps.md."
    )
    for path in drawn:
        console.print(f"figure: {path}", soft_wrap=True)


def question_of(
    hospitals: int,
    examples: int | None,
    epsilon: float,
    delta: float,
    daisy_period: int,
    *,
    parameters: int | None = None,
    iterations: int = 1,
    visits: int | None = None,
    rounds: int | None = None,
) -> Question:
    """Build the question from the options; wrong values are usage errors."""
    try:
        return Question(
            hospitals,
            examples,
            epsilon,
            delta,
            daisy_period,
            parameters=parameters,
            iterations=iterations,
            visits=visits,
            rounds=rounds,
        )
    except BoundError as error:
        raise typer.BadParameter(str(error)) from error


def _table(question: Question, found: Bound) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    m, k, rounds = question.hospitals, found.visits, found.rounds
    rows: dict[str, str] = {}
    if question.visits is None:
        rows["examples a model must see"] = f"{found.examples_needed:.1f}"
    rows |= {
        "hospitals it must visit": f"{k} of {m}",
        "Proposition 5, as printed": f"b ≥ {_number(found.printed_bound)} (wrong)",
    }
    if question.visits is None:
        rows["with n₀(ε, δ)"] = (
            f"b ≥ {_number(found.printed_bound_at_delta)} (as the paper's figures; wrong)"
        )
    rows |= {
        "all chains, probability 1 − √δ": f"b = {_number(found.aggregation_period)}",
        "one chain, probability 1 − √δ": f"b = {_number(found.aggregation_period_of_one_chain)}",
        "with permutation = coverage": f"{_number(found.coverage_legs)} legs, for certain",
    }
    if rounds is not None:
        at = f"after {rounds} rounds"
        mean = sum(count * probability for count, probability in found.distinct.items())
        rows |= {
            f"{at}, one chain": f"{mean:.1f} hospitals on average; "
            f"at least {k}: {_probability(found.chain_probability)}",
            f"{at}, all chains": f"at least {k}: {_probability(found.all_chains_probability)} "
            f"({found.simulated_runs} simulated runs); "
            f"union bound: at least {_probability(found.all_chains_bound)}",
        }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".removesuffix(".00")


def _probability(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
