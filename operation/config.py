"""The base of every group of settings: keys with hyphens, checked once, refused by name."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

Scalar = bool | int | float | str
_S = TypeVar("_S", bound="SettingsGroup")
_FEW_CHOICES = 4  # that a comment of one line can name


class SettingsError(ValueError):
    """A setting is unknown or impossible; the message names its key, value and source."""


def setting(
    default: Scalar,
    summary: str,
    *,
    advice: str = "",
    values: str = "",
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Any:
    """Declare one setting of a group, with all that files and documentation show of it.

    `summary` is one line, shown beside the default in configuration files and in --help.
    `advice` follows it in docs/settings.md: details, and when to change the default.
    `values` describes the possible values where the type and the limits do not.
    """
    return Field(
        default,
        description=summary,
        json_schema_extra={"advice": advice, "values": values},
        ge=ge,
        gt=gt,
        le=le,
        lt=lt,
        allow_inf_nan=False if isinstance(default, float) else None,
    )


class SettingsGroup(BaseModel):
    """A group of settings: unknown keys and impossible values are refused by name."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        populate_by_name=False,
        alias_generator=lambda name: name.replace("_", "-"),
    )

    renamed: ClassVar[Mapping[str, str]] = {}
    """Former keys of this group's settings, each with the key to use instead."""

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Return the declaration of each setting by its key."""
        return {str(field.alias): field for field in cls.model_fields.values()}

    @classmethod
    def key_names(cls) -> tuple[str, ...]:
        return tuple(cls.fields())

    @classmethod
    def parse(cls: type[_S], values: Mapping[str, Any], *, source: str) -> _S:
        """Check `values`; error messages name `source`, where the values come from."""
        refuse_renamed(values, cls.renamed, source=source)
        floats = {key for key, field in cls.fields().items() if field.annotation is float}
        widened = {
            # TOML and command lines write 1 where 1.0 is meant.
            key: float(value) if key in floats and _fits_a_float(value) else value
            for key, value in values.items()
        }
        try:
            return cls.model_validate(widened)
        except ValidationError as error:
            raise SettingsError(f"{describe(error)} ({source})") from error

    def as_config(self) -> dict[str, Scalar]:
        """Return the settings as flat key-value pairs, the form Flower carries."""
        return self.model_dump(by_alias=True)


def refuse_renamed(values: Iterable[str], renamed: Mapping[str, str], *, source: str) -> None:
    """Raise SettingsError for the first key that has a new name."""
    for key in values:
        if key in renamed:
            raise SettingsError(f"{key} was renamed: use {renamed[key]} ({source})")


def _fits_a_float(value: object) -> bool:
    return type(value) is int and abs(value) <= sys.float_info.max


def describe(error: ValidationError) -> str:
    """Describe the first problem in one line that begins with the setting's key."""
    problem = error.errors(include_url=False)[0]
    key = str(problem["loc"][0]) if problem["loc"] else ""
    value = problem["input"]
    context = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            return f"{key} is not a setting"
        case "missing":
            return f"{key} is missing"
        case "greater_than_equal":
            rule = f"must be at least {context['ge']}"
        case "greater_than":
            rule = f"must be more than {context['gt']}"
        case "less_than_equal":
            rule = f"must be at most {context['le']}"
        case "less_than":
            rule = f"must be less than {context['lt']}"
        case "literal_error":
            rule = f"must be one of {context['expected']}"
        case "int_type" | "int_from_float" | "int_parsing":
            rule = "must be a whole number"
        case "float_type" | "float_parsing" | "finite_number":
            rule = "must be a finite number"
        case "bool_type":
            rule = "must be true or false"
        case "string_type":
            rule = "must be text"
        case "value_error":
            return f"{key} {context['error']}" if key else str(context["error"])
        case _:
            rule = problem["msg"]
    return f"{key} {rule}, got {value!r}"


def toml_lines(fields: Mapping[str, FieldInfo], values: Mapping[str, object]) -> list[str]:
    """Return `key = value  # summary` for each field, with the comments in one column."""
    # The strings, numbers, booleans and lists of JSON are valid TOML.
    pairs = {key: f"{key} = {json.dumps(values[key], ensure_ascii=False)}" for key in fields}
    width = max(map(len, pairs.values()), default=0)
    return [f"{pairs[key]:{width}}  # {one_line(field)}" for key, field in fields.items()]


def sentence(summary: str) -> str:
    """Return a summary as a sentence; a symbol or a file's name at its beginning stays as it is."""
    first = summary.split()[0]
    is_word = len(first) > 1 and "." not in first
    return f"{first[0].upper() if is_word else first[0]}{summary[1:]}."


def one_line(field: FieldInfo) -> str:
    """Return the summary of a setting, and its choices where they are few."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    named = f": {', '.join(choices)}" if 0 < len(choices) <= _FEW_CHOICES else ""
    return f"{field.description}{named}"
