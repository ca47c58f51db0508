"""What all parts of a codebook are made of: strict models, names and numbers."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_LARGEST = 1e12


class Part(BaseModel):
    """A part of a codebook: frozen, with no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def name_key(name: str) -> str:
    """Return what makes two names one: spaces around them and capitals don't count."""
    return unicodedata.normalize("NFC", name).strip().casefold()


def _printable(text: str) -> str:
    # Names are printed in tables and messages; their writer must not be able to forge lines.
    if text != unicodedata.normalize("NFC", text).strip() or not text.isprintable():
        raise ValueError("must be printable text in composed form (NFC), without spaces around it")
    return text


def _no_negative_zero(number: float) -> float:
    return number + 0.0  # one spelling of 0: equal codebooks have equal bytes


Text = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]
Line = Annotated[str, Field(max_length=200), AfterValidator(_printable)]  # may be empty
Number = Annotated[
    float,
    Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False),
    AfterValidator(_no_negative_zero),
]
Positive = Annotated[float, Field(gt=1e-12, le=_LARGEST, allow_inf_nan=False)]


def check_distinct(what: str, keys: list[str]) -> None:
    """Raise ValueError if two names would be taken for one."""
    if len(set(keys)) != len(keys):
        raise ValueError(f"two {what} differ only in capitals, or not at all")
