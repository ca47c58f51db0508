"""A coordinator whose processes are killed resumes to the model of an undisturbed run."""

import os
import random
import signal
from pathlib import Path

import pytest

from tests.federation.failures import options
from tests.federation.federation import (
    Federation,
    assert_chains_accounted_for,
    assert_same_model,
    needs_nginx,
)

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]


@pytest.mark.parametrize(
    ("victims", "changes"),
    [
        pytest.param(
            ("flwr-serverapp",),
            {"aggregator": "fedadam", "server_learning_rate": 0.01},
            marks=pytest.mark.long,
            id="ServerApp",
        ),
        pytest.param(
            ("operation.flower.superlink",),
            {"aggregator": "fedavgm"},
            marks=pytest.mark.long,
            id="SuperLink",
        ),
        pytest.param(("flwr-serverapp", "operation.flower.superlink"), {}, id="both"),
    ],
)
def test_a_killed_coordinator_resumes_to_the_same_model(
    study: Federation, tmp_path: Path, victims: tuple[str, ...], changes: dict[str, object]
) -> None:
    run = study.begin(*options(**changes))
    study.wait_for_leg(random.randint(1, 7))  # noqa: S311
    pids = study.coordinator_processes(*victims)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    outcome = study.ended(run)
    assert outcome.code == 1
    assert "resume" in outcome.errors
    study.coordinator("up")
    outcome = study.run(command="resume")
    assert outcome.code == 0, outcome.errors
    assert study.events("resumed")
    assert outcome.result["legs"] == 9
    assert_same_model(study, tmp_path / "simulated", **changes)
    assert_chains_accounted_for(study)
