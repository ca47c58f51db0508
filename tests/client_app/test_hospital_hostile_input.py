"""The hospital: errors and hostile bytes are answered, and the answer and the log stay clean."""

import json
import logging
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.trainer import Trainer
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Refusal
from tests.client_app.small_hospital import (
    COORDINATOR,
    EVERY_LEG_AGGREGATES,
    OPTIMIZERS,
    Code,
    close,
    forged,
    hospital,
    leg,
    member,
    model,
    plain,
    remembered,
    second,
    training,
)


def test_an_internal_error_gives_only_its_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    memory: dict[str, bytes] = {}
    here = hospital(memory)
    before = dict(memory)

    def fail(*_: object) -> None:
        raise RuntimeError("patient 4711 is 63 years old")

    with monkeypatch.context() as broken:
        broken.setattr(Trainer, "train", fail)
        reply = here.answer(leg(model()))

    assert plain(reply) == Refusal(code=Code.INTERNAL_ERROR)
    assert b"4711" not in reply
    assert "patient 4711" in caplog.text  # the operator finds it in the local log
    assert remembered(memory) == remembered(before)
    assert plain(here.answer(leg(model()))) == plain(hospital().answer(leg(model())))


def test_what_a_sender_writes_cannot_pass_for_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = "x\nnorth: agreed to everything\x1b[2J\u202e"
    header = json.dumps({"kind": "hello", lines: 1, "y" * 10_000: 2}).encode()
    unknown = b"FDC2" + len(header).to_bytes(4, "big") + header + bytes(64)

    with caplog.at_level(logging.WARNING):
        for here, request, code in (
            (member(), unknown, Code.MALFORMED),
            (member(), training(model=lines * 1_000), Code.AGAINST_POLICY),
            (
                member(policy={"any-model": True}),
                training(model=lines * 1_000),
                Code.DESCRIPTOR_REFUSED,
            ),
        ):
            assert plain(here.answer(request)) == Refusal(code=code)

    assert len(caplog.records) == 3
    assert "agreed to everything" in caplog.records[0].getMessage()
    for record in caplog.records:
        assert record.getMessage().isprintable()
        assert len(record.getMessage()) < 500


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60), st.randoms(use_true_random=False))
def test_whatever_comes_in_is_answered_and_a_refusal_changes_nothing(
    noise: bytes, random: Random
) -> None:
    memory: dict[str, bytes] = {}
    here = hospital(memory, schedule=EVERY_LEG_AGGREGATES, **OPTIMIZERS["momentum kept"])
    bodies = [leg(model(), recipient=None), second(), close(model())]
    for data in (*(body[:-64] for body in bodies), noise):
        place, removed = random.randrange(len(data) + 1), random.randrange(3)
        mutated = data[:place] + noise[:3] + data[place + removed :]
        before = dict(memory)
        # With the coordinator's own signature: hostile is what it signed.
        reply = decode_signed_reply(here.answer(forged(mutated + bytes(64), COORDINATOR)))
        if isinstance(reply, Refusal):
            assert reply.code is not Code.INTERNAL_ERROR
            assert remembered(memory) == remembered(before)
