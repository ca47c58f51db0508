"""Mutated envelopes: refused, quickly, and never a crash."""

from dataclasses import replace

import pytest
from hypothesis import given

from protocol.sealing import envelope
from protocol.sealing.envelope import Context, EnvelopeError
from tests.fuzz import fuzz
from tests.protocol.mutations import Sample, mutated, refuses
from tests.protocol.three_members import KEYS

CONTEXT = Context("e1", bytes(range(32)), 3, "North")
MEMBER_KEY = bytes(range(32, 64))
# All for the same key: valid ones of this place, and of places close to it.
PLACES = [
    (CONTEXT, MEMBER_KEY),
    (CONTEXT, MEMBER_KEY),
    (replace(CONTEXT, leg=4), MEMBER_KEY),
    (replace(CONTEXT, recipient="West"), MEMBER_KEY),
    (CONTEXT, bytes(32)),
]
ENVELOPES = [
    Sample(
        sealed := envelope.seal(
            bytes([number]) * 40,
            context=context,
            recipient_key=KEYS["North"].public,
            member_key=member_key,
        ),
        (1088, 1120, len(sealed) - 16, len(sealed)),
    )
    for number, (context, member_key) in enumerate(PLACES)
]


def test_only_what_was_sealed_for_this_place_opens() -> None:
    for number, sample in enumerate(ENVELOPES):
        if number < 2:
            assert _open(sample.data) == bytes([number]) * 40
        else:
            refuses(lambda data=sample.data: _open(data), EnvelopeError)


def _open(data: bytes) -> bytes:
    return envelope.open(data, context=CONTEXT, key=KEYS["North"], member_key=MEMBER_KEY)


@fuzz
@given(mutated(ENVELOPES))
def test_mutated_envelopes_are_refused(data: bytes) -> None:
    refuses(lambda: _open(data), EnvelopeError)


@pytest.mark.slow
def test_every_bit_of_an_envelope_matters() -> None:
    sealed = ENVELOPES[0].data
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        refuses(lambda data=bytes(changed): _open(data), EnvelopeError)
