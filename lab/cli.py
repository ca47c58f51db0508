"""`feddc lab`: the researcher's commands."""

from pathlib import Path
from typing import Annotated

import click
import typer

from lab.commands.completion import datasets, experiments
from lab.commands.completion import methods as complete_methods
from operation.command_line.command import command_class, renamed_commands
from operation.terminal import activity

app = typer.Typer(no_args_is_help=True, cls=renamed_commands({"plan": "bound"}))


def complete_settings(incomplete: str) -> list[tuple[str, str]]:
    """Complete `--set`."""
    from server_app.config.completion import settings  # imports pydantic

    return settings(incomplete)


_FORMER = {"--samples": "--examples"}

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON line.")]
_LOADING = "loading PyTorch"  # which takes seconds


@app.callback()
def lab() -> None:
    """Compare methods on one machine."""


@app.command(cls=command_class("feddc lab demo"))
def demo(
    json_output: JsonOption = False,
) -> None:
    """Compare daisy-chaining with the alternatives: first in seconds, then on Flower's engine."""
    with activity(_LOADING, quiet=json_output):
        from lab.demo import demo as run

    raise typer.Exit(run(json_output=json_output))


@app.command("list", cls=command_class("feddc lab list"))
def list_experiments(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Tell more about these.", autocompletion=experiments),
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="Tell more about all of them.")] = False,
    json_output: JsonOption = False,
) -> None:
    """List the paper's experiments and our ablations."""
    with activity(_LOADING, quiet=json_output):
        from lab.commands.list_command import show_list

    show_list(names or [], long=long, json_output=json_output)


@app.command(
    cls=command_class(
        "feddc lab run synthetic --methods feddc,fedavg-b --seeds 1",
        renamed=_FORMER | {"--setting": "--preset"},
    )
)
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments or ablations, see `feddc lab list`.", autocompletion=experiments
        ),
    ] = None,
    preset: Annotated[
        str,
        typer.Option(
            click_type=click.Choice(["laptop", "desk", "full"]),
            help="laptop: a demonstration of minutes; desk: the paper's regime, 5 minutes to "
            "hours on two cores; full: the paper's sizes.",
        ),
    ] = "laptop",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods to compare, comma-separated; default: all.",
            autocompletion=complete_methods,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds; default: the experiment's.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:PATH]",
            help="Your own data, e.g. image-folder:PATH or csv:FILE.",
            autocompletion=datasets,
        ),
    ] = None,
    hospitals: Annotated[
        int | None, typer.Option(min=2, help="With --dataset: number of hospitals.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=1, help="With --dataset: training examples per hospital.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="With --dataset: any other setting; repeatable.",
            autocompletion=complete_settings,
        ),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; default: runs/<time>-<name>-<id>."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Concurrent trainings; default: one per core.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Train on a running Ray cluster."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compare all methods on experiments of the paper, or on your own data.

    Ctrl-C is safe: run the same command again to continue.
    """
    with activity(_LOADING, quiet=json_output) as now:
        from lab.commands.run_command import requests_of, run_all

        now("reading the experiments")
        requests = requests_of(
            names or [],
            preset=preset,
            methods=methods,
            seeds=seeds,
            dataset=dataset,
            hospitals=hospitals,
            examples=examples,
            assignments=settings,
            run_dir=run_dir,
        )
    if ray and workers:
        raise typer.BadParameter("--workers is for this machine: a Ray cluster has its own size")
    raise typer.Exit(
        run_all(requests, run_dir=run_dir, workers=workers, json_output=json_output, ray=ray)
    )


@app.command(cls=command_class("feddc lab compare runs/one runs/two"))
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, all of `feddc lab run` or of `simulate`.")
    ],
    json_output: JsonOption = False,
) -> None:
    """Show several finished runs side by side."""
    with activity(_LOADING, quiet=json_output):
        from lab.commands.compare_command import compare as side_by_side
        from lab.commands.run_command import screen

    raise typer.Exit(side_by_side(runs, screen(), json_output=json_output))


@app.command(cls=command_class("feddc lab report"))
def report(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Finished runs to copy results from.")
    ] = None,
    docs: Annotated[Path, typer.Option(help="Documentation folder.")] = Path("docs"),
) -> None:
    """Regenerate docs/results.md, the tables of docs/when-it-helps.md and the README's plot."""
    with activity(_LOADING):
        from lab.commands.report_command import report as make

    raise typer.Exit(make(runs or [], docs))


@app.command(cls=command_class("feddc lab page runs/one runs/two --output both.html"))
def page(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders of `feddc simulate`, or one of `lab run`.")
    ],
    output: Annotated[
        Path | None, typer.Option(help="File for several runs on one page; default: report.html.")
    ] = None,
) -> None:
    """Write the reports of runs again, or several runs on one page to hand out."""
    with activity("loading"):
        from lab.commands.page_command import write_page

    raise typer.Exit(write_page(runs, output))


@app.command(cls=command_class("feddc lab export runs/one --to tensorboard"))
def export(
    run: Annotated[Path, typer.Argument(help="Run folder of `feddc simulate`.")],
    to: Annotated[
        str, typer.Option(click_type=click.Choice(["csv", "tensorboard"]), help="Format.")
    ] = "csv",
    output: Annotated[
        Path | None, typer.Option(help="File or folder; default: in the run folder.")
    ] = None,
    hospitals: Annotated[
        bool,
        typer.Option(
            "--hospitals",
            help="Also single hospitals' figures; in a real study, of those that publish them.",
        ),
    ] = False,
) -> None:
    """Write a run's figures for other programs; by default pooled ones only."""
    with activity(_LOADING):
        from lab.commands.export_run_command import export as write

    raise typer.Exit(write(run, to, output, with_hospitals=hospitals))


@app.command(cls=command_class("feddc lab dashboard runs --port 0"))
def dashboard(
    folder: Annotated[Path, typer.Argument(help="Folder with runs.")] = Path("runs"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any that is free.")
    ] = 8790,
) -> None:
    """Show the runs of a folder on a page of this machine, while they run, and compare them."""
    from operation.terminal import exit_on_error
    from server_app.cli.dashboard_commands import serve_dashboard

    with exit_on_error(user="the owner of the folder"):
        folder.mkdir(parents=True, exist_ok=True)
        serve_dashboard(folder, f"FedDC: {folder}", port)


@app.command(cls=command_class("feddc lab bound --hospitals 10 --examples 8", renamed=_FORMER))
def bound(
    hospitals: Annotated[int, typer.Option(help="Members of the study, m.")],
    examples: Annotated[int | None, typer.Option(help="Training examples per hospital, n.")] = None,
    epsilon: Annotated[float, typer.Option(help="Largest accepted error ε.")] = 0.05,
    delta: Annotated[float, typer.Option(help="Probability δ of a larger error.")] = 0.01,
    daisy_period: Annotated[int, typer.Option(help="Rounds between hand-overs, d.")] = 1,
    parameters: Annotated[
        int | None, typer.Option(help="Parameters of the model, to check the conditions.")
    ] = None,
    radon_iterations: Annotated[int, typer.Option(help="Iterations h of the Radon point.")] = 1,
    visits: Annotated[
        int | None, typer.Option(help="Hospitals to visit, k; default: from n, ε and δ.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of a chain; default: the bound as printed.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the two figures of the analysis.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Compute how long chains must be: Proposition 5 of the paper, as printed and corrected."""
    with activity("loading Matplotlib", quiet=json_output):
        from lab.commands.bound_command import question_of, show_bound

    question = question_of(
        hospitals,
        examples,
        epsilon,
        delta,
        daisy_period,
        parameters=parameters,
        iterations=radon_iterations,
        visits=visits,
        rounds=rounds,
    )
    show_bound(question, figures=figures, json_output=json_output)


@app.command(cls=command_class("feddc lab advise --hospitals 10 --examples 8", renamed=_FORMER))
def advise(
    hospitals: Annotated[int, typer.Option(min=2, help="Members of the study, m.")],
    examples: Annotated[int, typer.Option(min=1, help="Training examples per hospital, n.")],
    rounds: Annotated[int, typer.Option(min=1, help="Local updates of every model, T.")] = 200,
    classes: Annotated[
        int, typer.Option(min=0, help="Classes at each hospital; 0: all of them.")
    ] = 0,
    private: Annotated[
        bool, typer.Option(help="Patients are protected by differential privacy.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Suggest settings to start with, and give the reasons."""
    from lab.advise import Case
    from lab.commands.advise_command import show_advice

    case = Case(hospitals, examples, rounds=rounds, classes=classes, private=private)
    show_advice(case, json_output=json_output)


@app.command(cls=command_class("feddc lab attack"))
def attack(
    picture: Annotated[
        Path, typer.Option(help="PNG file for records beside their reconstructions.")
    ] = Path("runs/attack.png"),
    json_output: JsonOption = False,
) -> None:
    """Attack a study as a curious hospital would, with and without noise."""
    with activity(_LOADING, quiet=json_output):
        from lab.commands.attack_command import show_attack

    show_attack(picture=picture, json_output=json_output)


@app.command(cls=command_class("feddc lab data"))
def data(
    json_output: JsonOption = False,
) -> None:
    """Show which data sets are available and intact, and where to get the others."""
    with activity("loading scikit-learn", quiet=json_output):
        from lab.commands.data_command import show_data

    show_data(json_output=json_output)
