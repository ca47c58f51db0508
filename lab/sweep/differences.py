"""Whether a folder's comparison may grow into another: only seeds and methods may differ."""

from collections.abc import Iterator
from typing import Any

from lab.sweep.plan import Request

# What is said about an experiment, and what may differ.
_WORDS = {"title", "source", "claim", "note", "needs", "stand-in", "x-label", "plots", "paper"}
_MAY_GROW = {"seeds", "methods"}
_TOLD = 3


def differences(there: Request, here: Request) -> list[str]:
    """Say in what else than seeds and methods two requests differ, at most three things."""
    found = []
    if there.experiment.name != here.experiment.name:
        return [f"{there.experiment.name}, not {here.experiment.name}"]
    if there.setting != here.setting:
        return [f"setting {there.setting}, not {here.setting}"]
    ours, theirs = dict(_parts(here)), dict(_parts(there))
    for key in dict.fromkeys((*theirs, *ours)):
        if theirs.get(key) != ours.get(key):
            found.append(f"{key} {_told(theirs.get(key))}, not {_told(ours.get(key))}")
    if not found and there.data and here.data and there.data != here.data:
        return ["the data have changed since"]
    return found[:_TOLD]


def _parts(request: Request) -> Iterator[tuple[str, Any]]:
    """Yield what decides about the trainings, each setting by itself."""
    whole = request.experiment.model_dump(by_alias=True, mode="json")
    size = whole.pop(request.setting) or {}
    yield from (whole.pop("settings") | size.pop("settings", {})).items()
    variants = size.pop("variants", None) or whole["variants"]
    yield "variants", [_without_paper(variant) for variant in variants]
    for key, value in (*whole.items(), *size.items()):
        if key not in _WORDS | _MAY_GROW | {"laptop", "full", "name", "variants"}:
            yield key, value


def _without_paper(variant: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in variant.items() if key != "paper"}


def _told(value: object) -> str:
    if value is None:
        return "none"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
