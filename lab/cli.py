"""`feddc lab`: the researcher's commands."""

from pathlib import Path
from typing import Annotated

import typer

from operation.renames import renamed_options

app = typer.Typer(no_args_is_help=True)
_EXAMPLES = renamed_options({"--samples": "--examples"})


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


@app.command("list")
def list_experiments(
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Show the paper's experiments and our own studies."""
    from lab.commands.list_command import show_list

    show_list(json_output=json_output)


@app.command(cls=_EXAMPLES)
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments or studies, see `feddc lab list`.")
    ] = None,
    setting: Annotated[
        str, typer.Option(help="laptop: minutes on two cores; full: the paper's.")
    ] = "laptop",
    methods: Annotated[
        str | None, typer.Option(help="Only these, with commas between; else all.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many; else what the experiment says.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:PATH]", help="Data of your own, e.g. image-folder:PATH or csv:FILE."
        ),
    ] = None,
    hospitals: Annotated[
        int | None, typer.Option(min=2, help="With --dataset: how many share the data.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=1, help="With --dataset: training examples of each.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="With --dataset: any other setting; repeatable."
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; else runs/<time>-<name>-<id>."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time; else one for each core.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Compare all methods on experiments of the paper, or on data of your own.

    Stopped by Ctrl-C, what is done is kept, and the same command goes on from there.
    """
    from lab.commands.run_command import requests_of, run_all  # imports torch

    requests = requests_of(
        names or [],
        setting=setting,
        methods=methods,
        seeds=seeds,
        dataset=dataset,
        hospitals=hospitals,
        examples=examples,
        assignments=settings,
        run_dir=run_dir,
    )
    raise typer.Exit(run_all(requests, run_dir=run_dir, workers=workers, json_output=json_output))


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of `feddc lab run`.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Show several finished runs side by side."""
    from lab.commands.compare_command import compare as side_by_side
    from lab.commands.run_command import screen

    raise typer.Exit(side_by_side(runs, screen(), json_output=json_output))


@app.command()
def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Finished runs whose results are taken over.")
    ] = None,
    docs: Annotated[Path, typer.Option(help="The folder of the documentation.")] = Path("docs"),
) -> None:
    """Make the documentation's pages of results anew."""
    from lab.commands.report_command import report as make

    raise typer.Exit(make(runs or [], docs))


@app.command(cls=_EXAMPLES)
def plan(
    hospitals: Annotated[int, typer.Option(help="Members of the study, m.")],
    examples: Annotated[int, typer.Option(help="Training examples of each, n.")],
    epsilon: Annotated[float, typer.Option(help="Largest error ε that is accepted.")] = 0.05,
    delta: Annotated[float, typer.Option(help="Probability δ that it is larger.")] = 0.01,
    daisy_period: Annotated[int, typer.Option(help="Rounds between hand-overs, d.")] = 1,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the two figures of the analysis.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Find the smallest aggregation period that Proposition 5 of the paper asks for."""
    from lab.commands.bound_command import question_of, show_plan  # imports matplotlib

    question = question_of(hospitals, examples, epsilon, delta, daisy_period)
    show_plan(question, figures=figures, json_output=json_output)


@app.command(cls=_EXAMPLES)
def advise(
    hospitals: Annotated[int, typer.Option(min=2, help="Members of the study, m.")],
    examples: Annotated[int, typer.Option(min=1, help="Training examples of each, n.")],
    rounds: Annotated[int, typer.Option(min=1, help="Local updates of every model, T.")] = 200,
    classes: Annotated[
        int, typer.Option(min=0, help="Classes at each hospital; 0: all are mixed.")
    ] = 0,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Suggest settings to begin with, and say why."""
    from lab.advise import Case
    from lab.commands.advise_command import show_advice

    case = Case(hospitals, examples, rounds=rounds, classes=classes)
    show_advice(case, json_output=json_output)


@app.command()
def data(
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Show which data sets are there and intact, and where to get the others."""
    from lab.commands.data_command import show_data  # imports scikit-learn

    show_data(json_output=json_output)
