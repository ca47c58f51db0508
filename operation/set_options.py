"""Settings on a command line: the repeatable option `--set KEY=VALUE`."""

import tomllib
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # pydantic, which `feddc --help` can do without
    from operation.config import Scalar

_PERIODS = ("daisy-period", "aggregation-period")


def parse_set_options(assignments: list[str] | None) -> "dict[str, Scalar]":
    """Return the values of all `--set` options; whether a key exists is checked with the rest."""
    values: dict[str, Scalar] = {}
    for assignment in assignments or ():
        key, equals, text = assignment.partition("=")
        key = key.strip()
        if not equals or not key:
            raise click.UsageError(f"--set takes KEY=VALUE, got {assignment!r}")
        if key in values:
            raise click.UsageError(f"{key} is given twice (command line)")
        values[key] = 0 if key in _PERIODS and text.strip() == "never" else _toml_scalar(key, text)
    return values


def _toml_scalar(key: str, text: str) -> "Scalar":
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text  # a bare word
    value = parsed["value"]
    if isinstance(value, list | dict) or len(parsed) > 1:
        raise click.UsageError(f"{key} must be a single value, got {text!r} (command line)")
    return value if isinstance(value, bool | int | float | str) else text
