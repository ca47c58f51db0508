"""Draft a codebook from a sample of patients, or from a REDCap data dictionary.

A draft is for people to complete: what can't be known is left out, and named when it is checked.
"""

import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np

from learning.data.examples import DataError
from learning.data.partition.groups import GROUP_COLUMNS
from learning.data.tables.files import read_table
from learning.data.tables.table import Table
from protocol.codebook import USUAL_MARKERS, is_no, is_yes, level_key, name_key

_MOST_LEVELS = 20
_FEWEST_PER_LEVEL = 2  # what only one patient of the sample has is no level
_NUMBERS = 0.9  # of the cells that are not missing
_MISSING = frozenset(map(level_key, USUAL_MARKERS))
# Eight of REDCap's 18 fixed columns; the others are about forms and their layout.
_FIELD, _TYPE, _LABEL = "Variable / Field Name", "Field Type", "Field Label"
_CHOICES = "Choices, Calculations, OR Slider Labels"
_VALIDATION = "Text Validation Type OR Show Slider Number"
_LOWEST, _HIGHEST, _IDENTIFIER = "Text Validation Min", "Text Validation Max", "Identifier?"
_REDCAP = (_FIELD, _TYPE, _LABEL, _CHOICES, _VALIDATION, _LOWEST, _HIGHEST, _IDENTIFIER)


def draft_codebook(path: Path, label: str) -> str:
    """Return the text of a codebook.toml; DataError if the file is of no use."""
    table = read_table(path)
    is_dictionary = all(table.find(name) for name in _REDCAP)
    columns = _from_redcap(table) if is_dictionary else _from_sample(table)
    classes = columns.pop(name_key(label), None)
    if classes is None:
        raise DataError(
            f"{path}: no column {label!r} with the class; choose one with --label: "
            f"{', '.join(table.texts(_FIELD) if is_dictionary else table.columns)}"
        )
    lines = [
        f"# Draft from {path.name}. Review every line: all hospitals pin this file.",
        "# range: what is plausible; other numbers are clipped. Scaled: (value - centre) / scale.",
        'title = ""',
        f"classes = {_toml(classes.classes)}  # in the order of the model's outputs",
        f"label = {_toml(classes.name)}",
    ]
    for column in columns.values():
        lines += ["", *column.lines()]
    return "\n".join(lines) + "\n"


class _Draft:
    """One column, as far as it is known."""

    def __init__(
        self,
        name: str,
        kind: str,
        comment: str = "",
        *,
        levels: list[str] | None = None,
        classes: list[str] | None = None,
        **values: object,
    ) -> None:
        self.name, self.kind, self.comment = name, kind, comment
        self.classes = levels or classes or ["0", "1"]  # if it is the label
        self.values = values if levels is None else {"levels": levels}

    def lines(self) -> list[str]:
        head = [f"# {self.comment}"] if self.comment else []
        head += ["[[columns]]", f"name = {_toml(self.name)}", f'kind = "{self.kind}"']
        return head + [f"{key} = {_toml(value)}" for key, value in self.values.items()]


def _from_sample(table: Table) -> dict[str, _Draft]:
    drafts = {}
    for name in table.columns:
        if name_key(name) in GROUP_COLUMNS:
            continue
        texts = [text for text in table.texts(name) if text and level_key(text) not in _MISSING]
        if (draft := _guess(name, texts)) is not None:
            drafts[name_key(name)] = draft
    return drafts


def _guess(name: str, texts: list[str]) -> _Draft | None:
    keys = set(map(level_key, texts))
    if not keys:
        return None
    if all(is_yes(key) or is_no(key) for key in keys):
        return _Draft(name, "yes-no", classes=sorted(set(texts)))
    numbers = [float(key) for key in map(level_key, texts) if _is_number(key)]
    if len(numbers) >= _NUMBERS * len(texts) and len(set(numbers)) > 2:
        return _number(name, np.array(numbers))
    counts = Counter(texts)
    levels = sorted(text for text, count in counts.items() if count >= _FEWEST_PER_LEVEL)
    if not levels or len(levels) > _MOST_LEVELS or sum(counts[x] for x in levels) < len(texts) / 2:
        return None  # names, numbers of patients, free text
    return _Draft(name, "category", levels=levels)


def _is_number(key: str) -> bool:
    try:
        return math.isfinite(float(key))
    except ValueError:
        return False


def _number(name: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> _Draft:
    """Round numbers, wider than the sample: another hospital's patients are others."""
    low, high = float(values.min()), float(values.max())
    spread = (high - low) / 2
    scale = _round(float(values.std()) or 1.0)
    bottom = _round(low - spread)
    return _Draft(
        name,
        "number",
        unit="",
        range=[0.0 if low >= 0 > bottom else bottom, _round(high + spread)],
        centre=_round(float(np.median(values))),
        scale=scale,
    )


def _round(value: float) -> float:
    return float(f"{value:.2g}")


def _from_redcap(table: Table) -> dict[str, _Draft]:
    cells = {name: table.texts(str(table.find(name))) for name in _REDCAP}
    drafts = {}
    for field in (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)):
        if name_key(field[_IDENTIFIER]) == "y":
            continue
        for draft in _redcap_field(field):
            drafts[name_key(draft.name)] = draft
    return drafts


def _redcap_field(field: dict[str, str]) -> list[_Draft]:
    name, kind, label = field[_FIELD], field[_TYPE].lower(), _one_line(field[_LABEL])
    choices = [tuple(map(str.strip, part.split(",", 1))) for part in field[_CHOICES].split("|")]
    codes = [choice[0] for choice in choices if choice[0]]
    meaning = "; ".join(_one_line(" = ".join(choice)) for choice in choices)
    match kind:
        case "yesno" | "truefalse":
            return [_Draft(name, "yes-no", label)]
        case "radio" | "dropdown":
            return [_Draft(name, "category", f"{label} ({meaning})", levels=codes)]
        case "checkbox":
            return [_Draft(f"{name}___{code}", "yes-no", f"{label} ({code})") for code in codes]
        case "slider":
            return [_redcap_number(name, label, "0", "100")]
        case "calc":
            return [_redcap_number(name, label, "", "")]
        case "text" if field[_VALIDATION].lower().startswith(("integer", "number")):
            return [_redcap_number(name, label, field[_LOWEST], field[_HIGHEST])]
    return []  # free text, dates, files, headings


def _redcap_number(name: str, label: str, low: str, high: str) -> _Draft:
    low, high = low.replace(",", "."), high.replace(",", ".")
    if not (_is_number(low) and _is_number(high) and float(low) < float(high)):
        return _Draft(name, "number", f"{label}: fill in range, centre and scale", unit="")
    bottom, top = float(low), float(high)
    return _Draft(
        name,
        "number",
        f"{label}: centre and scale are guessed from the range",
        unit="",
        range=[bottom, top],
        centre=(bottom + top) / 2,
        scale=_round((top - bottom) / 6),
    )


def _one_line(text: str) -> str:
    """Return text without line breaks or HTML, which REDCap's labels may have."""
    plain = re.sub(r"<[^>]*>", " ", text)
    return " ".join("".join(c if c.isprintable() else " " for c in plain).split())


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # texts, numbers and lists are the same in TOML
