"""Agents and coordinators are killed in each trip of a secure sum: the experiment goes on."""

from pathlib import Path

import pytest

from tests.federation.failures import EACH_TRIP, VICTIM, ever_missing, kill_all, seen_in_trip
from tests.federation.federation import (
    Federation,
    assert_chains_accounted_for,
    assert_same_model,
    needs_nginx,
)

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]


@pytest.mark.parametrize("trip", EACH_TRIP)
def test_a_coordinator_killed_in_a_trip_resumes_to_the_same_model(
    study: Federation, tmp_path: Path, trip: str
) -> None:
    run = study.begin()
    server_app = study.server_apps()  # looked up before: a trip takes a moment only
    assert seen_in_trip(study, trip), f"no aggregation was seen in the trip {trip}"
    kill_all(server_app)
    assert study.ended(run).code == 1

    outcome = study.run(command="resume")

    assert outcome.code == 0, outcome.errors
    assert study.events("resumed")
    assert_same_model(study, tmp_path / "simulated")


@pytest.mark.parametrize("trip", EACH_TRIP)
def test_an_agent_killed_in_a_trip_is_done_without_at_most(study: Federation, trip: str) -> None:
    run = study.begin()
    assert seen_in_trip(study, trip), f"no aggregation was seen in the trip {trip}"
    study.kill("agent", VICTIM)
    study.start("agent", VICTIM)

    outcome = study.ended(run)

    assert outcome.code == 0, outcome.errors
    assert outcome.result["readable_models"] == 0
    assert ever_missing(study) <= {VICTIM}
    assert_chains_accounted_for(study)
