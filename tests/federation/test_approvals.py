"""A whole study in which one hospital's operator approves each experiment."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.federation.federation import (
    Federation,
    assert_same_model,
    feddc,
    federation,
    needs_nginx,
    wait_for,
)

pytestmark = [needs_nginx, pytest.mark.slow, pytest.mark.timing]


def test_an_experiment_waits_for_an_approval_over_a_crash_and_then_begins(tmp_path: Path) -> None:
    with federation() as study:
        careful, folder = study.names[1], study.hospital(study.names[1])
        configuration = folder / "hospital.toml"
        text = configuration.read_text().replace('approval = "automatic"', 'approval = "each"')
        configuration.write_text(text)
        study.restart("agent", careful)

        run = study.begin()
        assert waiting(study) == {careful: "waiting for approval"}
        shown = json.loads(study.coordinator("status", "--json"))
        assert [h["problem"] for h in shown["hospitals"] if h["name"] == careful] == [
            "waiting for approval"
        ]
        (experiment,) = shown["experiments"]
        assert experiment["state"] == "running"
        assert "waiting to begin" in experiment["reason"]
        for pid in study.coordinator_processes("flwr-serverapp"):
            os.kill(pid, signal.SIGKILL)
        assert study.ended(run).code == 1

        resumed = study.begin(command="resume")
        wait_for(lambda: len(study.events("approval")) == 2 or None, "a second wait")
        place = ["--folder", str(folder)]
        (listed,) = json.loads(feddc("hospital", "experiments", "--json", *place))
        assert listed["state"] == "waiting"
        assert {e["fingerprint"] for e in study.events("approval")} == {listed["fingerprint"]}
        fingerprint = ["--fingerprint", listed["fingerprint"]]
        feddc("hospital", "approve", listed["experiment"], *fingerprint, *place)

        outcome = study.ended(resumed)
        assert outcome.code == 0, outcome.errors
        (listed,) = json.loads(feddc("hospital", "experiments", "--json", *place))
        assert listed["state"] == "closed"
        assert_same_model(study, tmp_path / "simulated")


def waiting(study: Federation) -> dict[str, str]:
    event = wait_for(lambda: next(iter(study.events("approval")), None), "a wait for approval")
    found: dict[str, str] = event["hospitals"]
    return found
