"""Compare two requests: a run folder can be extended only by seeds and methods."""

from collections.abc import Iterator
from typing import Any

from lab.sweep.plan import Request

# Descriptions that do not affect the trainings, and what an extension may change.
_WORDS = {"title", "source", "claim", "note", "explanation", "paper", "x-label", "plots"}
_WORDS |= {"needs", "stand-in"}
_MAY_GROW = {"seeds", "methods"}
_MOST_SHOWN = 3


def differences(there: Request, here: Request) -> list[str]:
    """Describe up to three differences of two requests other than seeds and methods."""
    found = []
    if there.experiment.name != here.experiment.name:
        return [f"{there.experiment.name}, not {here.experiment.name}"]
    if there.preset != here.preset:
        return [f"preset {there.preset}, not {here.preset}"]
    ours, theirs = dict(_parts(here)), dict(_parts(there))
    for key in dict.fromkeys((*theirs, *ours)):
        if theirs.get(key) != ours.get(key):
            found.append(f"{key} {_shown(theirs.get(key))}, not {_shown(ours.get(key))}")
    if not found and there.data and here.data and there.data != here.data:
        return ["the data have changed since"]
    return found[:_MOST_SHOWN]


def _parts(request: Request) -> Iterator[tuple[str, Any]]:
    """Yield everything that affects the trainings, one setting at a time."""
    whole = request.experiment.model_dump(by_alias=True, mode="json")
    preset = whole.pop(request.preset) or {}
    yield from (whole.pop("settings") | preset.pop("settings", {})).items()
    variants = preset.pop("variants", None) or whole["variants"]
    yield "variants", [_without_paper(variant) for variant in variants]
    for key, value in (*whole.items(), *preset.items()):
        if key not in _WORDS | _MAY_GROW | {"laptop", "desk", "full", "name", "variants"}:
            yield key, value


def _without_paper(variant: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in variant.items() if key != "paper"}


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
