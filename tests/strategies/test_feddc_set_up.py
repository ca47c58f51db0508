"""FedDC's set-up: an experiment begins with exactly the members, all agreed."""

from collections.abc import Iterable

import pytest
from flwr.app import Message

from protocol.message_bytes import decode_signed_reply
from protocol.messages import (
    Announcement,
    ExchangeKeyShares,
    Hello,
    Introduction,
    KeyShares,
    OpenKeyShares,
    Ready,
    Refusal,
    RefusalCode,
    SetUp,
    TrainLeg,
)
from protocol.records import from_records
from protocol.sealing.bundle import to_bundle
from protocol.study.simulated_study import simulated_study
from strategies.session.quorum import ExperimentFailed, QuorumNotReached
from tests.fake_clock import FakeClock
from tests.strategies.misconduct import Rule, answers, at, is_deaf, raises, signed
from tests.strategies.unruly_grid import NAMES, UnrulyGrid, assert_same, prepare, run, tiny


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            at(Hello, 2, raises),
            "node 102 did not introduce itself: no answer from its agent: Flower error 2",
        ),
        (at(Hello, 2, is_deaf), "node 102 did not introduce itself: no answer in 120 s"),
        (at(Hello, 2, answers(KeyShares())), "node 102 did not introduce itself"),
        (
            at(Hello, 2, answers(Introduction(hospital="alias"))),
            "alias, which is not on the roster",
        ),
        (
            at(SetUp, 2, raises),
            f"{NAMES[2]} did not agree: no answer from its agent: Flower error 2",
        ),
        (
            at(SetUp, 2, answers(Refusal(code=RefusalCode.DESCRIPTOR_REFUSED))),
            f"{NAMES[2]} did not agree: refused: descriptor-refused",
        ),
        (
            at(SetUp, 2, answers(KeyShares())),
            f"{NAMES[2]} did not agree: unexpected reply type",
        ),
        (
            at(ExchangeKeyShares, 2, is_deaf),
            f"{NAMES[2]} did not exchange keys: no answer in 120 s",
        ),
        (
            at(ExchangeKeyShares, 2, answers(KeyShares(payload=b"?"))),
            f"{NAMES[2]} sent no key shares",
        ),
        (  # each would have been sent on to its recipient
            at(ExchangeKeyShares, 2, answers(KeyShares(payload=to_bundle({"a": bytes(10**6)})))),
            f"{NAMES[2]} sent no key shares: they have another length",
        ),
        (
            at(SetUp, 2, answers(Announcement(examples=7, payload=bytes(10**6)))),
            f"{NAMES[2]}: invalid announcement of 1000000 bytes",
        ),
        (
            at(OpenKeyShares, 2, answers(Refusal(code=RefusalCode.KEYS_REFUSED))),
            f"{NAMES[2]} did not make its key: refused: keys-refused",
        ),
        (
            at(OpenKeyShares, 2, answers(Ready(confirmation="ab" * 32))),
            "did not derive the same member key",
        ),
    ],
)
def test_an_experiment_begins_with_all_members_agreed_or_not_at_all(
    rule: Rule, message: str
) -> None:
    grid = UnrulyGrid(tiny(sealed=True), rule)
    with pytest.raises(ExperimentFailed, match=message):
        run(grid)
    assert not any(isinstance(r, TrainLeg) for _, _, r in grid.conversation())


@pytest.mark.parametrize(
    ("connected", "error", "message"),
    [
        (4, QuorumNotReached, "only 4 of 5 hospitals are connected after 120 s"),
        (6, ExperimentFailed, "6 hospitals are connected, but the study has 5: set hospitals"),
    ],
)
def test_exactly_the_members_must_be_connected(
    connected: int, error: type[Exception], message: str
) -> None:
    grid, clock = UnrulyGrid(tiny(hospitals=connected)), FakeClock(0.0)
    with pytest.raises(error, match=message):
        run(grid, roster=simulated_study(3, NAMES[:5]).roster, clock=clock)
    assert grid.asked == []
    assert clock.now() < 121


@pytest.mark.parametrize("weighting", ["examples", "chain-examples"])
def test_weights_by_examples_need_hospitals_that_tell_their_number(weighting: str) -> None:
    def hides(message: Message, reply: Message) -> Message:
        announced = decode_signed_reply(from_records(reply.content))
        hidden = announced.model_copy(update={"examples": None})
        return Message(signed(message, hidden), reply_to=message)

    rule = at(SetUp, 2, hides)
    with pytest.raises(ExperimentFailed, match=f"{NAMES[2]} keeps to itself: use equal weights"):
        run(UnrulyGrid(tiny(), rule), weighting=weighting)
    assert run(UnrulyGrid(tiny(rounds=1), rule)).diary.hospitals[NAMES[2]] is None


def test_two_nodes_of_one_name_are_refused() -> None:
    claim = Introduction(hospital=NAMES[3])
    twin = at(Hello, 2, lambda m, _: Message(signed(m, claim, NAMES[3]), reply_to=m))
    _, start = prepare(UnrulyGrid(tiny(), twin))
    with pytest.raises(ExperimentFailed, match=f"two nodes call themselves {NAMES[3]}"):
        start()


def test_a_name_is_believed_only_with_its_signature() -> None:
    grid = UnrulyGrid(tiny(), at(Hello, 2, answers(Introduction(hospital=NAMES[3]))))
    _, start = prepare(grid)
    with pytest.raises(ExperimentFailed, match=f"the agent of {NAMES[3]} has not signed"):
        start()


def test_the_roster_is_in_order_of_names_whatever_the_nodes_ids() -> None:
    class Shuffled(UnrulyGrid):
        def get_node_ids(self) -> Iterable[int]:
            return [104, 100, 105, 103, 101, 102]

    outcome = run(Shuffled(tiny()))
    assert list(outcome.diary.hospitals) == sorted(NAMES)
    assert_same(
        outcome.diary.aggregates[12].parameters,
        run(UnrulyGrid(tiny())).diary.aggregates[12].parameters,
    )
