"""Agents and coordinators are killed in each trip of a secure sum: the experiment goes on."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.federation.failures import VICTIM, ever_missing
from tests.federation.federation import (
    Federation,
    assert_chains_accounted_for,
    assert_same_model,
    needs_nginx,
)

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]

# What the coordinator's journal says about the secure sum in each trip.
TRIPS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "masked": lambda state: not state["survivors"],
    "signed": lambda state: bool(state["survivors"]) and not state["signatures"],
    "revealed": lambda state: bool(state["signatures"]),
}


def wait_for_trip(study: Federation, trip: str) -> None:
    """Wait until the coordinator is in this trip of any of the aggregations."""
    journal = study.experiment() / "journal" / "state.json"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        assert not study.events("end"), f"no aggregation was seen in the trip {trip}"
        for _ in range(100):
            try:
                state = json.loads(journal.read_text()).get("secure_sum")
            except (FileNotFoundError, ValueError):
                state = None
            if state is not None and TRIPS[trip](state):
                return
            time.sleep(0.001)
    raise AssertionError(f"no {trip} after 600 s")


@pytest.mark.parametrize("trip", list(TRIPS))
def test_a_coordinator_killed_in_a_trip_resumes_to_the_same_model(
    study: Federation, tmp_path: Path, trip: str
) -> None:
    run = study.begin()
    wait_for_trip(study, trip)
    for pid in study.coordinator_processes("flwr-serverapp"):
        os.kill(pid, signal.SIGKILL)
    assert study.ended(run).code == 1

    outcome = study.run(command="resume")

    assert outcome.code == 0, outcome.errors
    assert study.events("resumed")
    assert_same_model(study, tmp_path / "simulated")


@pytest.mark.parametrize("trip", list(TRIPS))
def test_an_agent_killed_in_a_trip_is_done_without_at_most(study: Federation, trip: str) -> None:
    run = study.begin()
    wait_for_trip(study, trip)
    study.kill("agent", VICTIM)
    study.start("agent", VICTIM)

    outcome = study.ended(run)

    assert outcome.code == 0, outcome.errors
    assert outcome.result["readable_models"] == 0
    assert ever_missing(study) <= {VICTIM}
    assert_chains_accounted_for(study)
