"""What the tests of failures ask of an experiment."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from tests.federation.federation import Federation

VICTIM = "hospital-02"

# What the coordinator's journal says about a secure sum in each trip.
TRIPS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "masked": lambda state: not state["survivors"],
    "signed": lambda state: bool(state["survivors"]) and not state["signatures"],
    "revealed": lambda state: bool(state["signatures"]),
}
# Each takes minutes: `make test-slow` tries the second trip, `make test-long` the others.
EACH_TRIP = [
    trip if trip == "signed" else pytest.param(trip, marks=pytest.mark.long) for trip in TRIPS
]


def seen_in_trip(study: Federation, trip: str, *, closing: bool = False) -> bool:
    """Wait until the coordinator is in this trip of an aggregation, or of the closing sum.

    Return False if the experiment ended before that was seen: a trip takes a moment only.
    """
    journal = study.experiment() / "journal" / "state.json"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if study.events("end"):
            return False
        for _ in range(100):
            try:
                state = json.loads(journal.read_text())
            except (FileNotFoundError, ValueError):
                state = {}
            found = (state.get("closing") or {}) if closing else {"sum": state.get("secure_sum")}
            if (secure_sum := found.get("sum")) is not None and TRIPS[trip](secure_sum):
                return True
            time.sleep(0.001)
    raise AssertionError(f"no {trip} after 600 s")


def kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def options(**changes: object) -> list[str]:
    given = [f"{key.replace('_', '-')}={value}" for key, value in changes.items()]
    return [word for assignment in given for word in ("--set", assignment)]


def missing_in(study: Federation) -> dict[int, dict[str, str]]:
    """Return who was missing in which leg, and why."""
    return {event["leg"]: event["missing"] for event in study.events("leg") if event["missing"]}


def ever_missing(study: Federation) -> set[str]:
    return set().union(*missing_in(study).values())


def answered_after(study: Federation, leg: int, name: str) -> bool:
    return any(
        line["leg"] > leg and line["hospital"] == name and not line["problem"]
        for line in study.events("hospital")
    )
