"""An experiment begins at a hospital when its operator has approved it, and not before."""

import logging
from typing import Any

import pytest

from client_app.hospital.hospital import Hospital
from client_app.state.decisions import Decision
from client_app.state.experiment_ledger import ExperimentLedger, LedgerEntry
from client_app.state.reset import reset_experiments
from client_app.state.store import MappingStore
from protocol.approval import approval_fingerprint
from protocol.descriptor import Descriptor
from protocol.message_bytes import decode_signed_reply
from protocol.messages import Announcement, Refusal, Trained
from protocol.schedule import schedule_commitment
from tests.client_app.small_hospital import (
    IDENTITIES,
    NAME,
    ROSTER,
    TRAINING,
    Code,
    close,
    descriptor,
    leg,
    member,
    model,
    remembered,
    set_up,
)

EACH: dict[str, Any] = {"approval": "each", "maximum-experiments": 3}


class Site:
    """A hospital with an operator, who decides on descriptors."""

    def __init__(self, **policy: Any) -> None:
        self.memory: dict[str, bytes] = {}
        self.decisions: dict[str, Decision] = {}
        self._policy = EACH | {key.replace("_", "-"): value for key, value in policy.items()}

    @property
    def hospital(self) -> Hospital:
        """The agent, restarted: nothing is kept but its store."""
        return member(memory=self.memory, policy=self._policy, decisions=self.decisions)

    def ask(self, asked: Descriptor) -> Code | None:
        """Ask for an experiment; return the code of the refusal, None if it is agreed to."""
        reply = decode_signed_reply(self.hospital.answer(set_up(asked)))
        if isinstance(reply, Refusal):
            return reply.code
        assert isinstance(reply, Announcement)
        return None

    def decide(self, asked: Descriptor, decision: Decision) -> None:
        self.decisions[approval_fingerprint(asked, ROSTER)] = decision

    def ledger(self) -> tuple[LedgerEntry, ...]:
        return ExperimentLedger(MappingStore(self.memory)).entries()

    def states(self) -> dict[str, str]:
        return {entry.experiment: entry.state for entry in self.ledger()}


def test_it_waits_until_it_is_approved_and_begins_when_asked_again() -> None:
    site = Site()
    assert site.ask(descriptor()) is Code.WAITING_FOR_APPROVAL
    assert site.ask(descriptor()) is Code.WAITING_FOR_APPROVAL
    assert site.states() == {"e1": "waiting"}
    site.decide(descriptor(), "approved")
    assert site.ask(descriptor()) is None
    assert site.states() == {"e1": "agreed"}


def test_entries_of_an_older_store_are_read() -> None:
    """They were written before the terms had `minimum_cohort`, which was 2 then."""
    site = Site()
    site.ask(descriptor())
    older = site.memory[ExperimentLedger.NAME].replace(b'"minimum_cohort":2,', b"")
    assert older != site.memory[ExperimentLedger.NAME]
    site.memory[ExperimentLedger.NAME] = older
    assert [entry.terms.minimum_cohort for entry in site.ledger()] == [2]


def test_waiting_leaves_nothing_but_what_the_operator_is_shown() -> None:
    site = Site()
    site.ask(descriptor(training_seed=b"only for those who take part"))
    assert set(remembered(site.memory)) == {ExperimentLedger.NAME}
    assert b"only for those".hex().encode() not in site.memory[ExperimentLedger.NAME]
    reply = decode_signed_reply(site.hospital.answer(leg(model())))
    assert isinstance(reply, Refusal)
    assert reply.code is Code.UNKNOWN_EXPERIMENT


def test_a_rejected_one_is_refused_as_such_and_can_still_be_approved() -> None:
    site = Site()
    site.ask(descriptor())
    site.decide(descriptor(), "rejected")
    assert site.ask(descriptor()) is Code.REJECTED
    assert site.states() == {"e1": "rejected"}
    site.decide(descriptor(), "approved")
    assert site.ask(descriptor()) is None


def test_another_descriptor_under_the_same_id_needs_an_approval_of_its_own() -> None:
    site = Site()
    site.decide(descriptor(), "approved")
    for change in ({"rounds": 41}, {"training": TRAINING | {"batch-size": 2}}):
        assert site.ask(descriptor(**change)) is Code.WAITING_FOR_APPROVAL
    assert site.ask(descriptor()) is None
    # The other two have lost their id: they can't begin any more.
    assert [(e.state, e.terms.rounds) for e in site.ledger()] == [("agreed", 40)]


def test_what_would_be_refused_anyway_is_refused_and_does_not_wait() -> None:
    site = Site()
    for change, code in (
        ({"training": TRAINING | {"learning-rate": 11.0}}, Code.AGAINST_POLICY),
        ({"shape": (2, 2, 2)}, Code.DESCRIPTOR_REFUSED),
        ({"roster": bytes(32)}, Code.ANOTHER_ROSTER),
    ):
        assert site.ask(descriptor(**change)) is code
    assert remembered(site.memory) == {}


def test_automatic_approval_begins_at_once_and_is_counted() -> None:
    site = Site(approval="automatic")
    for number in range(3):
        assert site.ask(descriptor(experiment=f"e{number}")) is None
    assert site.ask(descriptor(experiment="e3")) is Code.AGAINST_POLICY
    assert site.states() == {"e0": "agreed", "e1": "agreed", "e2": "agreed"}


def test_a_closed_experiment_counts_and_is_listed_as_closed() -> None:
    site = Site(approval="automatic", maximum_experiments=1)
    site.ask(descriptor())
    site.hospital.answer(close(model()))
    assert site.states() == {"e1": "closed"}
    assert site.ask(descriptor(experiment="e2")) is Code.AGAINST_POLICY


def test_approved_ones_are_limited_too() -> None:
    site = Site(maximum_experiments=1)
    first, second = descriptor(), descriptor(experiment="e2")
    site.decide(first, "approved")
    site.decide(second, "approved")
    assert site.ask(first) is None
    assert site.ask(second) is Code.AGAINST_POLICY


def test_after_a_reset_it_waits_again_and_what_had_begun_still_counts() -> None:
    site = Site(maximum_experiments=2)
    site.decide(descriptor(), "approved")
    site.ask(descriptor())
    reset_experiments(MappingStore(site.memory), IDENTITIES[NAME])
    site.decisions.clear()
    assert site.states() == {"e1": "closed"}
    assert site.ask(descriptor(experiment="e2")) is Code.WAITING_FOR_APPROVAL
    assert site.ask(descriptor(experiment="e3")) is Code.AGAINST_POLICY
    assert site.ask(descriptor()) is Code.WAITING_FOR_APPROVAL


def test_a_rejection_of_a_running_experiment_ends_this_hospitals_part() -> None:
    site = Site()
    site.decide(descriptor(), "approved")
    site.ask(descriptor())
    site.decide(descriptor(), "rejected")
    reply = decode_signed_reply(site.hospital.answer(leg(model())))
    assert isinstance(reply, Refusal)
    assert reply.code is Code.REJECTED
    site.decide(descriptor(), "approved")
    assert isinstance(decode_signed_reply(site.hospital.answer(leg(model()))), Trained)


def test_the_agents_log_says_once_what_waits_and_which_command_to_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    with caplog.at_level(logging.WARNING):
        site.ask(descriptor())
        site.ask(descriptor())
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith(f"{NAME}: refused, waiting-for-approval: e1 needs your approval")
    assert "`feddc hospital approve e1`" in text


def test_the_terms_count_what_leaves_and_who_can_read_it() -> None:
    site = Site(maximum_experiments=10)
    cases = {
        # rounds, d, b → legs, hand-overs, aggregations; worked out by hand
        (40, 1, 5): (40, 32, 8),
        (40, 1, None): (40, 39, 1),
        (40, None, 5): (8, 0, 8),
        (7, 2, 5): (5, 3, 2),  # hand-overs after rounds 2, 4, 6; aggregations after 5 and 7
    }
    for number, ((rounds, d, b), expected) in enumerate(cases.items()):
        asked = descriptor(
            experiment=f"e{number}", rounds=rounds, daisy_period=d, aggregation_period=b
        )
        site.ask(asked)
        terms = site.ledger()[-1].terms
        assert (terms.legs, terms.hand_overs, terms.aggregations) == expected
        assert terms.is_random is False
    # 36 inputs, a hidden layer of 4, 3 classes
    assert terms.parameters == 36 * 4 + 4 + 4 * 3 + 3
    assert (terms.study, terms.members, terms.model) == ("study", 3, "mlp")
    # The tests' descriptor names a first model that the coordinator gives.
    assert terms.first_model == descriptor().first_model.hex()  # type: ignore[union-attr]


def test_of_a_random_schedule_the_terms_are_the_most_that_is_served() -> None:
    site = Site()
    commitment = schedule_commitment(bytes(32))
    asked = descriptor(daisy_period=1, aggregation_period=10, schedule_commitment=commitment)
    site.ask(asked)
    (entry,) = site.ledger()
    # 40 legs of which each aggregates with 1/10: 4, and 4 standard deviations of 1.9, and 1
    assert (entry.terms.legs, entry.terms.aggregations) == (40, 12)
    assert entry.terms.hand_overs == 39  # all but the last, if no aggregation is drawn
    assert entry.terms.is_random


def test_an_agent_that_waited_trains_the_same_after_a_restart() -> None:
    """Its secret streams are stored, though the first request that needed them was refused."""
    site = Site(private_streams=True)
    agent = site.hospital
    agent.answer(set_up(descriptor()))
    site.decide(descriptor(), "approved")
    assert isinstance(decode_signed_reply(agent.answer(set_up(descriptor()))), Announcement)
    restarted = site.hospital.with_store(MappingStore(dict(site.memory)))
    first, again = (decode_signed_reply(h.answer(leg(model()))) for h in (agent, restarted))
    assert isinstance(first, Trained)
    assert first.payload == again.payload
