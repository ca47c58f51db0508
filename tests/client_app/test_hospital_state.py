"""The hospital: it repeats its replies, stores bytes only, and destroys what is closed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from client_app.hospital.agreement.policy import Policy
from client_app.hospital.hospital import Hospital
from client_app.state.store import MappingStore
from learning.data import Partition
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Announcement, Carries, Closed, Refusal, Trained
from protocol.model_bytes import ModelState
from tests.client_app.small_hospital import (
    EVERY_LEG_AGGREGATES,
    EVERY_SECOND_LEG_AGGREGATES,
    IDENTITIES,
    NAME,
    OPEN_POLICY,
    OPTIMIZERS,
    PARTITIONS,
    ROSTER,
    TRAINING,
    Code,
    close,
    descriptor,
    examples,
    hospital,
    leg,
    member,
    model,
    plain,
    remembered,
    second,
    set_up,
    trained,
    wired,
    with_value,
)
from tests.client_app.three_hospitals import Study

# --- it repeats itself ----------------------------------------------------------------------------


# Legs 3, 6, 9 and the last, 11, end in an aggregation.
SCHEDULE: dict[str, Any] = {"rounds": 22, "daisy_period": 2, "aggregation_period": 6}


def conversation(**chosen: Any) -> list[Callable[[Hospital], bytes]]:
    """Return legs of every kind that SCHEDULE has; envelopes bring what came of the first leg."""
    aggregate, handed = wired(chosen), {"sent": b""}

    def first(here: Hospital) -> bytes:
        reply = here.answer(leg(aggregate))
        handed["sent"] = trained(reply).payload
        return reply

    def with_envelope(number: int, recipient: str | None) -> Callable[[Hospital], bytes]:
        fields = {"leg": number, "recipient": recipient}
        return lambda here: here.answer(leg(handed["sent"], carries=Carries.ENVELOPE, **fields))

    def with_aggregate(number: int, recipient: str | None) -> Callable[[Hospital], bytes]:
        fields = {"leg": number, "recipient": recipient}
        return lambda here: here.answer(leg(aggregate, **fields))

    return [
        first,
        with_envelope(2, "east"),
        with_envelope(3, None),
        with_aggregate(4, "east"),
        with_envelope(6, None),
        with_aggregate(9, None),
        with_aggregate(11, None),
    ]


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_same_request_again_gives_the_same_bytes(chosen: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    once = hospital(schedule=SCHEDULE, **chosen)
    again = hospital(memory, schedule=SCHEDULE, **chosen)

    for ask in conversation(**chosen):
        expected = plain(ask(once))
        given = ask(again)
        before = dict(memory)
        assert isinstance(expected, Trained)
        assert plain(given) == expected
        assert [ask(again), ask(again)] == [given, given]
        assert remembered(memory) == remembered(before)


def test_a_sealed_answer_is_repeated_bit_by_bit() -> None:
    # Sealed a second time it would have other bytes, and the leg two envelopes.
    study = Study().make_keys()
    request = leg(model())

    first = study.members[NAME].answer(request)

    assert study.members[NAME].answer(request) == first
    other = Hospital(
        NAME,
        PARTITIONS[NAME],
        MappingStore(study.memories[NAME]),
        identity=IDENTITIES[NAME],
        roster=ROSTER,
        policy=Policy.parse(OPEN_POLICY, source="test"),
    )
    assert other.answer(request) == first


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_agreeing_again_to_the_same_changes_nothing(chosen: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    here, undisturbed = member(memory=memory), hospital(schedule=SCHEDULE, **chosen)
    agreed = set_up(descriptor(training=TRAINING | chosen, **SCHEDULE))
    announced = here.answer(agreed)

    for ask in conversation(**chosen):
        before = dict(memory)
        assert here.answer(agreed) == announced
        assert remembered(memory) == remembered(before)
        assert plain(ask(here)) == plain(ask(undisturbed))


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_results_do_not_depend_on_how_rounds_are_grouped(chosen: dict[str, Any]) -> None:
    start = wired(chosen)
    long, short = ({"daisy_period": period} for period in (6, 1))
    whole = trained(hospital(schedule=long, **chosen).answer(leg(start, local_rounds=6)))

    here, losses = hospital(schedule=short, **chosen), []
    payload, carries = start, Carries.AGGREGATE
    for round_ in range(6):
        request = leg(payload, leg=round_ + 1, first_round=round_, local_rounds=1, carries=carries)
        step = trained(here.answer(request))
        payload, carries = step.payload, Carries.ENVELOPE
        losses.append(step.loss)

    if "wire-dtype" in chosen:  # each hand-over rounds, so they agree in three digits only
        ours, theirs = (ModelState.from_bytes(p, wire="bfloat16") for p in (payload, whole.payload))
        for name, array in ours.parameters.items():
            np.testing.assert_allclose(array, theirs.parameters[name], atol=0.02)
    else:
        assert payload == whole.payload
        assert whole.loss == pytest.approx(np.mean(losses), rel=1e-9)


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_all_its_state_is_bytes_in_its_store(chosen: dict[str, Any]) -> None:
    memory: dict[str, bytes] = {}
    lasting = hospital(schedule=SCHEDULE, **chosen)
    hospital(memory, schedule=SCHEDULE, **chosen)

    for ask in conversation(**chosen):
        assert all(type(key) is str and type(value) is bytes for key, value in memory.items())
        memory = {key: bytes(value) for key, value in memory.items()}
        assert plain(ask(member(memory=memory))) == plain(ask(lasting))


def test_the_state_does_not_grow_with_the_legs() -> None:
    memory: dict[str, bytes] = {}
    chosen = OPTIMIZERS["adam kept"] | {"proximal-mu": 0.5}
    here = hospital(memory, schedule=EVERY_LEG_AGGREGATES, **chosen)
    sizes = []
    for number in range(1, 8):
        assert trained(here.answer(leg(model(), leg=number, recipient=None)))
        names = {name: len(value) for name, value in memory.items() if "answer" not in name}
        sizes.append(sum(names.values()))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("chosen", [OPTIMIZERS["momentum kept"], OPTIMIZERS["adam kept"]])
def test_kept_optimizer_state_is_that_of_the_model_last_sent(chosen: dict[str, Any]) -> None:
    schedule = EVERY_SECOND_LEG_AGGREGATES
    here = hospital(schedule=schedule, **chosen)
    reset = hospital(schedule=schedule, **chosen | {"optimizer-state": "reset"})
    handed = trained(here.answer(leg(model()))).payload
    twin = hospital(**chosen)  # hands over where the other aggregates, to see its state
    at_the_end = {"leg": 2, "carries": Carries.ENVELOPE}
    seen = ModelState.from_bytes(trained(twin.answer(leg(handed, **at_the_end))).payload)
    assert trained(here.answer(leg(handed, **at_the_end, recipient=None)))

    after = leg(model(), leg=3)
    continued = ModelState(model().parameters, {}, seen.optimizer)
    same = leg(continued, leg=3, carries=Carries.ENVELOPE)

    expected = trained(twin.answer(same)).payload
    assert trained(here.answer(after)).payload == expected
    assert trained(reset.answer(after)).payload != expected


def test_two_hospitals_of_one_process_do_not_mix() -> None:
    # Hospitals of a process share one network to train in.
    other = Partition(NAME, examples(8, seed=7), examples(5, seed=8))
    chosen: dict[str, Any] = {"schedule": EVERY_SECOND_LEG_AGGREGATES, "momentum": 0.9}
    one, two = hospital(**chosen), hospital(partition=other, **chosen)
    last = leg(model(), leg=3)
    alone = [
        plain(hospital(**chosen).answer(last)),
        plain(hospital(partition=other, **chosen).answer(last)),
    ]
    assert trained(one.answer(leg(model(), leg=1)))
    assert trained(two.answer(leg(model(), leg=2, recipient=None)))

    assert [plain(one.answer(last)), plain(two.answer(last))] == alone
    assert alone[0] != alone[1]


# --- the end of an experiment ---------------------------------------------------------------------


def test_closing_an_experiment_destroys_its_state_and_keys() -> None:
    study = Study(optimizer="adam").make_keys()
    memory, here = study.memories[NAME], study.members[NAME]
    here.answer(leg(model()))
    secrets = [memory[f"e1/{name}"] for name in ("sealing-key", "member-key", "key-share")]

    assert isinstance(decode_signed_reply(here.answer(close(model()))), Closed)

    assert set(memory) == {"audit-head", "experiments", "privacy-ledger", "~ended/e1"}
    left = b"".join(memory.values())
    assert all(secret not in left for secret in secrets)
    assert here.answer(close(model())) == here.answer(close(model()))


def test_nothing_opens_a_closed_experiment_again() -> None:
    here = hospital()
    here.answer(leg(model()))
    here.answer(close(model()))

    # All of these were signed by the coordinator once, and anybody may have kept them.
    for request in (set_up(descriptor()), leg(model()), leg(model(), leg=2)):
        assert plain(here.answer(request)) == Refusal(code=Code.UNKNOWN_EXPERIMENT)
    other = close(with_value(3.0))
    assert plain(here.answer(other)) == Refusal(code=Code.CONFLICTING_REQUEST)
    assert isinstance(plain(here.answer(second())), Announcement)


def test_two_experiments_do_not_share_state() -> None:
    memory: dict[str, bytes] = {}
    chosen = OPTIMIZERS["adam kept"] | {"proximal-mu": 0.5}
    here, alone = hospital(memory, schedule=SCHEDULE, **chosen), member()
    for ask in conversation(**chosen):
        ask(here)
    agreed = second(training=TRAINING | chosen)
    for each in (here, alone):
        assert isinstance(decode_signed_reply(each.answer(agreed)), Announcement)

    request = leg(model(), experiment="e2")
    assert plain(here.answer(request)) == plain(alone.answer(request))
    here.answer(close(model(), "e2"))
    assert trained(here.answer(leg(model(), leg=11, recipient=None)))
