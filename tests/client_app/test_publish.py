"""`publish`: a hospital's policy decides whether its own figures may be handed out."""

from pathlib import Path
from typing import Any

import pytest

from client_app import simulated_hospital
from operation.runs.history import RunHistory
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Announcement
from tests.client_app.small_hospital import descriptor, member, set_up


@pytest.mark.parametrize(("policy", "said"), [({}, False), ({"publish": True}, True)])
def test_the_agent_announces_what_its_policy_says(policy: dict[str, Any], said: bool) -> None:
    reply = decode_signed_reply(member(policy=policy).answer(set_up(descriptor())))
    assert isinstance(reply, Announcement)
    assert reply.publish is said


@pytest.mark.parametrize("publish", [False, True])
def test_the_coordinator_records_who_publishes(
    run_tiny: Any, monkeypatch: pytest.MonkeyPatch, publish: bool
) -> None:
    changed = simulated_hospital._POLICY.model_copy(update={"publish": publish})
    monkeypatch.setattr(simulated_hospital, "_POLICY", changed)

    # Simulated hospitals are kept, by seed among others: no other test has this one.
    done = run_tiny(rounds=1, aggregation_period=1, sealed=False, seed=4711 + publish)

    history = RunHistory.read(Path(done.summary["run_dir"]))
    assert len(history.hospitals) == 6
    assert {one.publishes for one in history.hospitals.values()} == {publish}
