"""The agent's log shows a hospital how an experiment goes."""

import logging
import re

import pytest

from protocol.messages import Carries
from tests.client_app.small_hospital import close, descriptor, leg, member, model, set_up


def test_the_log_has_a_line_for_the_start_each_leg_and_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = member()
    # Leg 1 ends where models are handed over, leg 2 one round later.
    agreed = descriptor(daisy_period=5, aggregation_period=6)
    first = leg(model(), local_rounds=5)
    with caplog.at_level(logging.INFO):
        for request in (
            set_up(agreed),
            first,
            first,
            leg(
                model(),
                leg=2,
                first_round=5,
                local_rounds=1,
                carries=Carries.ENVELOPE,
                recipient=None,
            ),
            close(model()),
        ):
            here.answer(request)

    assert [re.sub(r"\d+\.\d s", "N s", line) for line in caplog.messages] == [
        "north: experiment e1 was agreed to: 40 rounds of mlp",
        "north: experiment e1, leg 1: rounds 1 to 5, handed over to east, N s",
        "north: experiment e1, leg 1: rounds 1 to 5, handed over to east, N s "
        "(the same answer again)",
        "north: experiment e1, leg 2: rounds 6 to 6, sent for aggregation, N s",
        "north: experiment e1 has ended; its keys are destroyed",
    ]


def test_a_refused_request_has_its_warning_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        member().answer(leg(model()))

    assert [record.levelname for record in caplog.records] == ["WARNING"]
