"""The hospital: the keys it makes with the others, and the envelopes it opens."""

from collections.abc import Callable
from typing import Any

import pytest

from protocol.bundle import to_bundle
from protocol.keys import Identity, SealingKey
from protocol.membership import announce
from protocol.messages import (
    Carries,
    ExchangeKeyShares,
    KeyShares,
    OpenKeyShares,
    Refusal,
    RefusalCode,
    decode_reply,
)
from tests.client_app.sealed_study import Study, envelope
from tests.client_app.small_hospital import (
    COORDINATOR,
    IDENTITIES,
    NAME,
    NAMES,
    OPTIMIZERS,
    ROSTER,
    ROUNDS,
    STRANGER,
    TRAINING,
    Code,
    descriptor,
    flipped,
    leg,
    member,
    model,
    plain,
    remembered,
    set_up,
    signed,
    trained,
)


def test_all_hospitals_make_the_same_key_and_no_message_holds_it() -> None:
    study = Study().make_keys()

    assert len(set(study.tags)) == 1
    keys = {memory["e1/member-key"] for memory in study.memories.values()}
    assert len(keys) == 1
    (key,) = keys
    everything = b"".join(study.announced.values()) + "".join(study.tags).encode()
    everything += b"".join(data for shares in study.sealed.values() for data in shares.values())
    for secret in (key, key.hex().encode()):
        assert secret not in everything


@pytest.mark.parametrize("chosen", [{}, OPTIMIZERS["adam"], OPTIMIZERS["running statistics"]])
def test_a_sealed_chain_computes_what_a_readable_one_does(chosen: dict[str, Any]) -> None:
    study, start = Study(**chosen).make_keys(), model(**chosen)
    readable = {name: member(name) for name in NAMES}
    for each in readable.values():
        each.answer(set_up(descriptor(training=TRAINING | chosen)))

    first = {"leg": 1, "recipient": "north"}
    then = {"leg": 2, "first_round": 2, "carries": Carries.ENVELOPE, "recipient": None}
    sealed = trained(study.members["east"].answer(leg(start, **first)))
    opened = trained(readable["east"].answer(leg(start, **first)))
    final = trained(study.members["north"].answer(leg(sealed.payload, **then, sealed_in=1)))
    expected = trained(readable["north"].answer(leg(opened.payload, **then)))

    assert (sealed.sealed, opened.sealed, final.sealed) == (True, False, False)
    assert final.payload == expected.payload
    weights = next(iter(start.parameters.values())).tobytes()[:8]
    assert weights not in sealed.payload


WRONG_ENVELOPES: dict[str, tuple[RefusalCode, Callable[[Study], tuple[str, bytes]]]] = {
    "altered": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(flipped(s.hand_over("east", "north"), -1))),
    ),
    "altered at its beginning": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(flipped(s.hand_over("east", "north"), 0))),
    ),
    "cut off": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(s.hand_over("east", "north")[:-1])),
    ),
    "empty": (Code.ENVELOPE_REFUSED, lambda s: ("north", envelope(b""))),
    "a readable model": (Code.ENVELOPE_REFUSED, lambda s: ("north", envelope(model().to_bytes()))),
    "for another hospital": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("south", envelope(s.hand_over("east", "north"))),
    ),
    "of another leg": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(s.hand_over("east", "north"), number=3, sealed_in=2)),
    ),
    "of another experiment's keys": (
        Code.ENVELOPE_REFUSED,
        lambda s: ("north", envelope(Study().make_keys().hand_over("east", "north"))),
    ),
    "of no leg": (
        Code.MALFORMED,
        lambda s: ("north", envelope(s.hand_over("east", "north"), sealed_in=None)),
    ),
    "of this very leg": (
        Code.MALFORMED,
        lambda s: ("north", envelope(s.hand_over("east", "north"), number=1, sealed_in=1)),
    ),
    "of the leg of the shares": (
        Code.MALFORMED,
        lambda s: ("north", envelope(s.hand_over("east", "north"), sealed_in=0)),
    ),
    "a share instead of a model": (
        Code.MALFORMED,
        lambda s: ("north", envelope(s.sealed["east"]["north"], sealed_in=0)),
    ),
    "opened before": (Code.REPLAYED, lambda s: ("north", _opened_before(s))),
}


def _opened_before(study: Study) -> bytes:
    sealed = study.hand_over("east", "north")
    assert trained(study.members["north"].answer(envelope(sealed)))
    return envelope(sealed, number=3)


@pytest.mark.parametrize(("code", "case"), WRONG_ENVELOPES.values(), ids=WRONG_ENVELOPES)
def test_an_envelope_that_does_not_belong_here_is_refused_and_nothing_changed(
    code: RefusalCode, case: Callable[[Study], tuple[str, bytes]]
) -> None:
    study = Study().make_keys()
    name, request = case(study)
    before = dict(study.memories[name])

    assert plain(study.members[name].answer(request)) == Refusal(code=code)

    assert remembered(study.memories[name]) == remembered(before)
    honest = study.hand_over("south" if name != "south" else "east", name, number=5)
    assert trained(study.members[name].answer(envelope(honest, number=6, sealed_in=5)))


def test_an_envelope_whose_model_is_refused_was_not_opened() -> None:
    study = Study(optimizer="adam").make_keys()
    sealed = study.hand_over("east", "north")
    tired = envelope(sealed, first_round=ROUNDS)

    assert plain(study.members["north"].answer(tired)) == Refusal(code=Code.ROUNDS_REFUSED)
    wrong_recipient = envelope(sealed, recipient="mallory")
    reply = study.members["north"].answer(wrong_recipient)
    assert plain(reply) == Refusal(code=Code.UNKNOWN_RECIPIENT)
    assert trained(study.members["north"].answer(envelope(sealed)))


def test_a_sealed_hand_over_needs_the_keys() -> None:
    study = Study()  # shares were sent, and none opened

    for request in (leg(model()), envelope(bytes(2000))):
        reply = study.members["north"].answer(request)
        assert plain(reply) == Refusal(code=Code.NOT_SET_UP)


def _with(study: Study, name: str, data: bytes) -> bytes:
    bundle = to_bundle(study.announced | {name: data})
    return signed(ExchangeKeyShares(experiment="e1", payload=bundle))


def _announced(name: str, identity: Identity, experiment: str = "e1") -> bytes:
    key = SealingKey.generate()
    return announce(identity, key, name=name, experiment=experiment, roster=ROSTER).to_bytes()


WRONG_KEYS: dict[str, Callable[[Study], bytes]] = {
    "announced by the coordinator": lambda s: _with(s, "east", _announced("east", COORDINATOR)),
    "announced by another member": lambda s: _with(
        s, "east", _announced("east", IDENTITIES["south"])
    ),
    "announced for another experiment": lambda s: _with(
        s, "east", _announced("east", IDENTITIES["east"], "e2")
    ),
    "of another hospital": lambda s: _with(s, "east", s.announced["south"]),
    "cut off": lambda s: _with(s, "east", s.announced["east"][:-1]),
    "of a stranger more": lambda s: _with(s, "mallory", _announced("mallory", STRANGER)),
    "of a member less": lambda s: signed(
        ExchangeKeyShares(
            experiment="e1",
            payload=to_bundle({n: d for n, d in s.announced.items() if n != "east"}),
        )
    ),
    "own, but never made here": lambda s: _with(s, NAME, _announced(NAME, IDENTITIES[NAME])),
}


@pytest.mark.parametrize("case", WRONG_KEYS.values(), ids=WRONG_KEYS)
def test_announcements_that_are_not_the_rosters_make_no_keys(
    case: Callable[[Study], bytes],
) -> None:
    study = Study()
    memory: dict[str, bytes] = {}
    late = member(memory=memory)
    agreed = decode_reply(late.answer(set_up(descriptor(sealed=True))))
    if case is not WRONG_KEYS["own, but never made here"]:
        study.announced[NAME] = agreed.payload
    before = dict(memory)

    assert plain(late.answer(case(study))) == Refusal(code=Code.KEYS_REFUSED)

    assert remembered(memory) == remembered(before)
    study.announced[NAME] = agreed.payload
    assert isinstance(decode_reply(late.answer(_with(study, NAME, agreed.payload))), KeyShares)


WRONG_SHARES: dict[str, Callable[[dict[str, bytes]], dict[str, bytes]]] = {
    "altered": lambda shares: shares | {"east": flipped(shares["east"], -1)},
    "one less": lambda shares: {"east": shares["east"]},
    "one more": lambda shares: shares | {NAME: shares["east"]},
    "exchanged": lambda shares: {"east": shares["south"], "south": shares["east"]},
    "one twice": lambda shares: {"east": shares["east"], "south": shares["east"]},
    "empty": lambda shares: shares | {"east": b""},
}


@pytest.mark.parametrize("change", WRONG_SHARES.values(), ids=WRONG_SHARES)
def test_shares_that_are_not_each_members_make_no_key(
    change: Callable[[dict[str, bytes]], dict[str, bytes]],
) -> None:
    study = Study()
    shares, memory = study.shares_for(NAME), study.memories[NAME]
    before = dict(memory)

    wrong = signed(OpenKeyShares(experiment="e1", payload=to_bundle(change(shares))))
    assert plain(study.members[NAME].answer(wrong)) == Refusal(code=Code.KEYS_REFUSED)

    assert remembered(memory) == remembered(before)
    assert study.make_keys().tags
