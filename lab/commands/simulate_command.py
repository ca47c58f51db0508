"""`feddc simulate`: run FedDC on simulated hospitals."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import click
import typer
from rich.console import Console

from operation.config import one_line, sentence
from operation.processes import signals
from operation.set_options import parse_set_options
from operation.terminal import activity
from server_app.config.completion import settings as complete_settings
from server_app.config.completion import values as known_values
from server_app.config.run_config import declaration

if TYPE_CHECKING:  # these import torch, which `feddc --help` can do without
    from operation.config import Scalar

JSON_KEYS = (
    "run_dir",
    "test_accuracy",
    "mean_client_accuracy",
    "legs",
    "hand_overs",
    "aggregations",
    "bytes_up",
    "bytes_down",
    "sealed",
    "seconds",
)
_STUDY, _METHOD, _TRAINING, _OUTPUT = "The study", "The method", "Training", "Running it"


class SignalReceived(BaseException):
    """The user or the system asked the command to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def _period(text: str) -> int:
    if text == "never":
        return 0
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number of rounds nor 'never'") from None


def _setting(key: str, panel: str, **more: Any) -> Any:
    """Return the option for a setting, with the help that its declaration has."""
    help_text = sentence(one_line(declaration(key)))
    if get_origin(declaration(key).annotation) is Literal:
        more["click_type"] = click.Choice(get_args(declaration(key).annotation))
    elif key in ("dataset", "model"):  # not a choice: plug-ins may be anywhere

        def complete(incomplete: str) -> list[str]:
            return known_values(key)

        more["autocompletion"] = complete
    return typer.Option(help=help_text, rich_help_panel=panel, **more)


def simulate(
    hospitals: Annotated[int | None, _setting("hospitals", _STUDY)] = None,
    dataset: Annotated[str | None, _setting("dataset", _STUDY)] = None,
    data_dir: Annotated[Path | None, _setting("data-dir", _STUDY)] = None,
    examples: Annotated[int | None, _setting("examples", _STUDY)] = None,
    rounds: Annotated[int | None, _setting("rounds", _METHOD)] = None,
    daisy_period: Annotated[
        int | None, _setting("daisy-period", _METHOD, parser=_period, metavar="ROUNDS|never")
    ] = None,
    aggregation_period: Annotated[
        int | None, _setting("aggregation-period", _METHOD, parser=_period, metavar="ROUNDS|never")
    ] = None,
    aggregator: Annotated[str | None, _setting("aggregator", _METHOD)] = None,
    permutation: Annotated[str | None, _setting("permutation", _METHOD)] = None,
    fraction: Annotated[float | None, _setting("fraction", _METHOD)] = None,
    model: Annotated[str | None, _setting("model", _TRAINING)] = None,
    learning_rate: Annotated[float | None, _setting("learning-rate", _TRAINING)] = None,
    seed: Annotated[int | None, _setting("seed", _TRAINING)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other setting of the run config; repeatable.",
            autocompletion=complete_settings,
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    run_dir: Annotated[Path | None, _setting("run-dir", _OUTPUT)] = None,
    cpus: Annotated[
        int | None,
        typer.Option(min=1, help="CPUs Ray may use; default: all.", rich_help_panel=_OUTPUT),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="A running Ray cluster to use, like RAY_ADDRESS; default: a private Ray.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON line.", rich_help_panel=_OUTPUT)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show Flower's log.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Run FedDC on simulated hospitals on this machine, with Flower's simulation engine.

    Periods are in rounds. docs/settings.md explains the settings and their defaults.
    """
    options: dict[str, Any] = {
        "hospitals": hospitals,
        "dataset": dataset,
        "data-dir": None if data_dir is None else str(data_dir),
        "examples": examples,
        "rounds": rounds,
        "daisy-period": daisy_period,
        "aggregation-period": aggregation_period,
        "aggregator": aggregator,
        "permutation": permutation,
        "fraction": fraction,
        "model": model,
        "learning-rate": learning_rate,
        "seed": seed,
        "run-dir": None if run_dir is None else str(run_dir),
    }
    values = merged({key: value for key, value in options.items() if value is not None}, settings)
    if ray is not None:
        os.environ["RAY_ADDRESS"] = ray  # of this process and of those it starts
    raise typer.Exit(_run(values, cpus=cpus, json_output=json_output, verbose=verbose))


def merged(options: "Mapping[str, Scalar]", assignments: list[str] | None) -> "dict[str, Scalar]":
    """Merge the options and the `--set` assignments into one run config."""
    values = dict(options)
    for key, value in parse_set_options(assignments).items():
        if key in values:
            raise click.UsageError(f"{key} is given twice (command line)")
        values[key] = value
    if data_dir := values.get("data-dir"):
        # The processes that read the data may have another working directory.
        values["data-dir"] = str(Path(str(data_dir)).expanduser().resolve())
    return values


def _run(values: "dict[str, Scalar]", *, cpus: int | None, json_output: bool, verbose: bool) -> int:
    with activity("loading PyTorch and Flower", quiet=json_output):
        # Imported only when there is something to run: torch alone takes seconds.
        from lab.flower.simulate import INPUT_ERRORS, SimulationFailed, default_run_dir, simulate
        from server_app.config.run_config import Settings
        from server_app.experiment import progress

    folder = Path(str(values.pop("run-dir", "") or default_run_dir())).expanduser().resolve()
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        settings = Settings.from_run_config(values, source="command line")
        with (
            _signals_as_exceptions(),
            progress.shown(errors, bar=errors.is_terminal and not verbose) as on_event,
        ):
            summary = simulate(
                settings, run_dir=folder, cpus=cpus, on_event=on_event, verbose=verbose
            )
    except INPUT_ERRORS as error:
        typer.echo(f"feddc: {error}", err=True)
        return 2
    except SimulationFailed as failure:
        typer.echo(f"feddc: {failure.reason}; log: {failure.log_path}", err=True)
        return 1
    except SignalReceived as stopped:
        typer.echo(f"feddc: stopped; {_kept(folder)}", err=True)
        return stopped.exit_code
    if json_output:
        typer.echo(json.dumps({key: summary[key] for key in JSON_KEYS}))
    else:
        Console().print(progress.closing_table(summary, folder))
    return 0


def _kept(folder: Path) -> str:
    files = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return f"kept in {folder}: {', '.join(files)}" if files else "no files were written"


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Turn Ctrl-C, `kill` and a closed terminal into SignalReceived, to clean up before exit."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SignalReceived(number)

    with signals.caught(stop):
        yield
