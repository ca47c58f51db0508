"""The base of every group of settings: keys with hyphens, checked once, refused by name."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

Scalar = bool | int | float | str
_S = TypeVar("_S", bound="SettingsGroup")


class SettingsError(ValueError):
    """A setting is unknown or impossible; the message names its key, value and source."""


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
    def key_names(cls) -> tuple[str, ...]:
        return tuple(str(field.alias) for field in cls.model_fields.values())

    @classmethod
    def parse(cls: type[_S], values: Mapping[str, Any], *, source: str) -> _S:
        """Check `values`; error messages name `source`, where the values come from."""
        refuse_renamed(values, cls.renamed, source=source)
        floats = {
            str(field.alias) for field in cls.model_fields.values() if field.annotation is float
        }
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
