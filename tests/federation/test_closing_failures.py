"""Agents and coordinators are killed in each trip of the closing sum: nothing is lost by it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.federation.failures import EACH_TRIP, VICTIM, kill_all, options, seen_in_trip
from tests.federation.federation import Federation, assert_same_model, needs_nginx

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]

# One leg, an aggregation, and then the closing sum.
SHORT: dict[str, Any] = {"rounds": 2, "daisy_period": 0, "aggregation_period": 2}
HELD_OUT = 5  # examples at each of the four hospitals
ATTEMPTS = 5


def in_trip(study: Federation, trip: str, disturb: Callable[[list[int]], None], code: int) -> None:
    """Run experiments until one is disturbed while its closing sum is in this trip.

    A trip takes a moment only: it may be over before it is seen, or before `disturb`, which gets
    the processes of the ServerApp, has had effect. Then the experiment ends with another code.
    """
    for _ in range(ATTEMPTS):
        run = study.begin(*options(**SHORT))
        server_app = study.server_apps()  # looked up before
        is_seen = seen_in_trip(study, trip, closing=True)
        if is_seen:
            disturb(server_app)
        outcome = study.ended(run)
        if is_seen and outcome.code == code:
            return
        assert outcome.code == 0, outcome.errors
        study.revive()
    raise AssertionError(f"{ATTEMPTS} closing sums were over before they were seen in {trip}")


def totals(study: Federation) -> dict[str, Any]:
    return study.events("held-out-total")[-1]


@pytest.mark.parametrize("trip", EACH_TRIP)
def test_a_coordinator_killed_in_a_closing_trip_resumes_to_the_same_model_and_figures(
    study: Federation, tmp_path: Path, trip: str
) -> None:
    in_trip(study, trip, kill_all, code=1)

    outcome = study.run(command="resume")

    assert outcome.code == 0, outcome.errors
    assert study.events("resumed")
    assert_same_model(study, tmp_path / "simulated", **SHORT)
    assert totals(study)["hospitals"] == 4
    assert totals(study)["examples"] == 4 * HELD_OUT


@pytest.mark.parametrize("trip", EACH_TRIP)
def test_an_agent_killed_in_a_closing_trip_lacks_in_the_figures_at_most(
    study: Federation, tmp_path: Path, trip: str
) -> None:
    def kill_agent(server_app: list[int]) -> None:
        study.kill("agent", VICTIM)
        study.start("agent", VICTIM)

    in_trip(study, trip, kill_agent, code=0)

    assert_same_model(study, tmp_path / "simulated", **SHORT)
    # In the first trip it may be killed before it has answered; later its vector is in the sum.
    added = {3, 4} if trip == "masked" else {4}
    assert totals(study)["hospitals"] in added
    assert totals(study)["examples"] == totals(study)["hospitals"] * HELD_OUT
