"""A whole study in which one hospital's operator approves each experiment."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="module")
def study() -> Iterator[Federation]:
    """A federation whose second hospital has a careful operator."""
    with federation() as made:
        configuration = made.hospital(careful(made)) / "hospital.toml"
        text = configuration.read_text().replace('approval = "automatic"', 'approval = "each"')
        configuration.write_text(text)
        made.restart("agent", careful(made))
        yield made


def careful(study: Federation) -> str:
    return study.names[1]


def test_an_experiment_waits_for_an_approval_over_a_crash_and_then_begins(
    study: Federation, tmp_path: Path
) -> None:
    run = study.begin()
    wait_for_waits(study, 1)
    assert study.events("approval")[0]["hospitals"] == {careful(study): "waiting for approval"}
    shown = json.loads(study.coordinator("status", "--json"))
    assert [h["problem"] for h in shown["hospitals"] if h["name"] == careful(study)] == [
        "waiting for approval"
    ]
    experiment = next(e for e in shown["experiments"] if e["id"] == study.experiment().name)
    assert experiment["state"] == "running"
    assert "waiting to begin" in experiment["reason"]
    for pid in study.coordinator_processes("flwr-serverapp"):
        os.kill(pid, signal.SIGKILL)
    assert study.ended(run).code == 1

    resumed = study.begin(command="resume")
    wait_for_waits(study, 2)
    approve(study)

    outcome = study.ended(resumed)
    assert outcome.code == 0, outcome.errors
    assert at_hospital(study)["state"] == "closed"
    assert_same_model(study, tmp_path / "simulated")


@pytest.mark.parametrize(
    "when",
    ["after the resumption", pytest.param("while it is stopped", marks=pytest.mark.long)],
)
def test_an_experiment_that_is_stopped_while_it_waits_for_approval_goes_on(
    study: Federation, tmp_path: Path, when: str
) -> None:
    run = study.begin()
    wait_for_waits(study, 1)
    study.coordinator("stop")
    assert study.ended(run).code == 1
    if when == "while it is stopped":
        approve(study)

    resumed = study.begin(command="resume")
    if when == "after the resumption":
        wait_for_waits(study, 2)
        approve(study)

    outcome = study.ended(resumed)
    assert outcome.code == 0, outcome.errors
    assert at_hospital(study)["state"] == "closed"
    assert_same_model(study, tmp_path / "simulated")


@pytest.mark.long
def test_a_reply_to_the_stopped_run_does_not_hold_up_the_resumed_one(
    study: Federation, tmp_path: Path
) -> None:
    run = study.begin()
    wait_for_waits(study, 1)
    study.signal("agent", careful(study), signal.SIGSTOP)
    wait_for(lambda: study.courier_is_at_work(careful(study)) or None, "a request at the agent")
    study.coordinator("stop")
    assert study.ended(run).code == 1

    resumed = study.begin(command="resume")
    study.server_apps()
    study.signal("agent", careful(study), signal.SIGCONT)
    wait_for_waits(study, 2)
    approve(study)

    outcome = study.ended(resumed)
    assert outcome.code == 0, outcome.errors
    assert_same_model(study, tmp_path / "simulated")


def wait_for_waits(study: Federation, number: int) -> None:
    """Wait until the experiment has waited for approval this often."""
    wait_for(lambda: len(study.events("approval")) >= number or None, f"wait {number} for approval")


def approve(study: Federation) -> None:
    listed = at_hospital(study)
    assert listed["state"] == "waiting"
    assert {e["fingerprint"] for e in study.events("approval")} == {listed["fingerprint"]}
    fingerprint = ["--fingerprint", listed["fingerprint"]]
    place = ["--folder", str(study.hospital(careful(study)))]
    feddc("hospital", "approve", listed["experiment"], *fingerprint, *place)


def at_hospital(study: Federation) -> dict[str, Any]:
    """Return the entry of the present experiment in the careful hospital's list."""
    place = ["--folder", str(study.hospital(careful(study)))]
    listed = json.loads(feddc("hospital", "experiments", "--json", *place))
    found: dict[str, Any] = next(e for e in listed if e["experiment"] == study.experiment().name)
    return found
