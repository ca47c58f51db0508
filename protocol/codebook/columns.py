"""The columns of a table: numbers, categories, yes or no."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .parts import Line, Number, Part, Positive, Text, check_distinct, name_key

_MOST_LEVELS = 1_000
_MOST_SCALES = 10_000  # from the centre: more is a wrong unit, and no number to train on
_YES = frozenset({"yes", "y", "true", "1.0", "ja", "j", "wahr", "oui", "vrai", "si", "sí", "x"})
_NO = frozenset({"no", "n", "false", "0.0", "nein", "falsch", "non", "faux"})

Markers = Annotated[tuple[Text, ...], Field(max_length=100, strict=False)]


class NumberColumn(Part):
    """An amount: clipped to its plausible range, then (value − centre) / scale.

    Two features: the amount, and whether it is missing. A missing amount is the centre.
    """

    kind: Literal["number"]
    name: Text
    unit: Line = ""
    range: Annotated[tuple[Number, Number], Field(strict=False)]
    centre: Number
    scale: Positive
    missing: Markers = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> "NumberColumn":
        low, high = self.range
        if not low < high:
            raise ValueError(f"range must rise, got {low} to {high}")
        if not low <= self.centre <= high:
            raise ValueError(f"centre must be in the range {low} to {high}, got {self.centre}")
        if max(high - self.centre, self.centre - low) > _MOST_SCALES * self.scale:
            raise ValueError(
                f"range {low} to {high} is more than {_MOST_SCALES} times the scale {self.scale}"
            )
        return self

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}: (missing)")


class CategoryColumn(Part):
    """One of several levels: a feature for each, for `other`, and for missing."""

    kind: Literal["category"]
    name: Text
    levels: Annotated[tuple[Text, ...], Field(min_length=1, max_length=_MOST_LEVELS, strict=False)]
    missing: Markers = ()

    @model_validator(mode="after")
    def _has_distinct_levels(self) -> "CategoryColumn":
        check_distinct("levels", list(map(level_key, self.levels)))
        return self

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(f"{self.name}: {level}" for level in (*self.levels, "(other)", "(missing)"))


class YesNoColumn(Part):
    """Yes (1) or no (−1); anything else counts as missing (0). The second feature says so."""

    kind: Literal["yes-no"]
    name: Text
    missing: Markers = ()

    @property
    def features(self) -> tuple[str, ...]:
        return (self.name, f"{self.name}: (missing)")


Column = Annotated[NumberColumn | CategoryColumn | YesNoColumn, Field(discriminator="kind")]


def is_yes(key: str) -> bool:
    """Return whether a cell's `level_key` means yes, in English or a neighbour's language."""
    return key in _YES


def is_no(key: str) -> bool:
    """Return whether a cell's `level_key` means no."""
    return key in _NO


def level_key(text: str) -> str:
    """Return what makes two cells one level: `1`, `1.0` and ` 1 ` are, `Male` and `male` too."""
    key = name_key(text)
    try:
        number = float(key)
    except ValueError:
        return key
    return repr(number + 0.0)
