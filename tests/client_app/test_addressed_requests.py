"""Who a request is for and whose a reply is: neither can be passed off as another's."""

import hashlib

import pytest

from protocol.message_bytes import (
    decode_signed_reply,
    encode,
    is_reply_by,
    sign_request,
)
from protocol.messages import (
    ANY_HOSPITAL,
    Announcement,
    Hello,
    Introduction,
    Refusal,
    Request,
    SetUp,
)
from tests.client_app.small_hospital import (
    COORDINATOR,
    IDENTITIES,
    NAME,
    ROSTER,
    Code,
    close,
    descriptor,
    forged,
    leg,
    member,
    model,
    plain,
    remembered,
    set_up,
)

SET_UP = SetUp(experiment="e1", payload=descriptor().to_bytes())


@pytest.mark.parametrize("request_", [Hello(), SET_UP], ids=["hello", "set-up"])
@pytest.mark.parametrize(
    ("study", "hospital"),
    [(ROSTER.study, "east"), (ROSTER.study, "North"), ("another study", NAME)],
)
def test_a_request_for_another_hospital_or_study_is_refused(
    request_: Request, study: str, hospital: str
) -> None:
    memory: dict[str, bytes] = {}
    here = member(memory=memory)

    reply = here.answer(sign_request(request_, COORDINATOR, study=study, hospital=hospital))

    assert plain(reply) == Refusal(code=Code.MISADDRESSED)
    assert remembered(memory) == {}


def test_only_a_hello_may_be_for_anybody() -> None:
    # The coordinator learns from it whose node it is talking to.
    hello, other = (
        sign_request(each, COORDINATOR, study=ROSTER.study, hospital=ANY_HOSPITAL)
        for each in (Hello(), SET_UP)
    )

    assert plain(member().answer(hello)) == Introduction(hospital=NAME)
    assert plain(member().answer(other)) == Refusal(code=Code.MISADDRESSED)


def test_a_request_without_an_address_is_refused() -> None:
    unaddressed = forged(encode(SET_UP) + bytes(64), COORDINATOR)

    assert plain(member().answer(unaddressed)) == Refusal(code=Code.MALFORMED)


def test_every_reply_is_signed_for_the_request_it_answers() -> None:
    here, identity = member(), IDENTITIES[NAME].public
    requests = [
        set_up(descriptor()),
        leg(model()),
        leg(model()),  # repeated
        leg(model(), leg=100),
        b"noise",
        b"",
        close(model()),
    ]

    for request in requests:
        reply, digest = here.answer(request), hashlib.sha256(request).digest()
        signed = {"study": ROSTER.study, "hospital": NAME}
        assert is_reply_by(identity, reply, **signed, request=digest)
        assert not is_reply_by(identity, reply, **signed, request=hashlib.sha256(b"x").digest())
        assert not is_reply_by(identity, reply, **signed | {"hospital": "east"}, request=digest)
        assert not is_reply_by(identity, reply, **signed | {"study": "other"}, request=digest)
        assert not is_reply_by(IDENTITIES["east"].public, reply, **signed, request=digest)
        changed = reply[:20] + bytes([reply[20] ^ 1]) + reply[21:]
        assert not is_reply_by(identity, changed, **signed, request=digest)


def test_the_example_is_agreed_to_when_it_is_addressed_rightly() -> None:
    request = sign_request(SET_UP, COORDINATOR, study=ROSTER.study, hospital=NAME)

    assert isinstance(decode_signed_reply(member().answer(request)), Announcement)
