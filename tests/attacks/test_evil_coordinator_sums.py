"""A malicious coordinator against hospitals that average securely: it learns sums, or nothing."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from client_app.hospital.hospital import Hospital
from client_app.state.store import MappingStore
from protocol.messages import (
    Carries,
    Close,
    Closed,
    Masked,
    RefusalCode,
    Reply,
    Reveal,
    SharesRevealed,
    SignSurvivors,
    Survivors,
    TrainLeg,
)
from protocol.model_bytes import ModelState
from protocol.model_size import layout_of
from protocol.sealing.bundle import from_bundle, to_bundle
from protocol.secure_sum.member import MaskedVector
from protocol.secure_sum.secure_leg import SecureLeg, threshold
from protocol.secure_sum.seeds import tag_seed
from protocol.secure_sum.tag import add_tag
from protocol.secure_sum.total import Total
from protocol.secure_sum.unmasking import unmask
from protocol.secure_sum.vector import SumForm, Vector, VectorForm
from tests.attacks.study import (
    NAMES,
    VICTIM,
    Experiment,
    Study,
    expect,
    in_process,
    new_study,
    partition,
    policy,
    refused,
)

Code = RefusalCode
SECURE: dict[str, Any] = {
    "averaging": "secure",
    "daisy_period": None,
    "aggregation_period": 1,
}
OTHERS = tuple(name for name in NAMES if name != VICTIM)


@dataclass
class Sum:
    """One secure sum under way, as its coordinator sees it."""

    experiment: Experiment
    leg: int
    cohort: tuple[str, ...] = NAMES
    masked: dict[str, MaskedVector] = field(default_factory=dict)
    signatures: dict[str, bytes] = field(default_factory=dict)

    @property
    def form(self) -> SumForm[Any]:
        model = self.experiment.first_model
        layouts = layout_of(model.parameters), layout_of(model.buffers)
        return VectorForm(*layouts, members=len(self.experiment.members))

    def train(self, name: str, **changes: Any) -> TrainLeg:
        fields: dict[str, Any] = {"leg": self.leg, "recipient": None, "cohort": self.cohort}
        return self.experiment.request(name, **fields | changes)

    def mask(self, *names: str, **changes: Any) -> None:
        for name in names or self.cohort:
            reply = self.experiment.study.ask(name, self.train(name, **changes))
            payload = expect(Masked, reply).payload
            self.masked[name] = MaskedVector.from_bytes(payload, self.form)

    def survivors(self, *names: str) -> SignSurvivors:
        chosen = names or tuple(self.masked)
        payload = to_bundle({name: self.masked[name].statement.to_bytes() for name in chosen})
        return SignSurvivors(experiment=self.experiment.id, leg=self.leg, payload=payload)

    def sign(self, *names: str) -> None:
        for name in names or tuple(self.masked):
            reply = self.experiment.study.ask(name, self.survivors())
            self.signatures[name] = expect(Survivors, reply).payload

    def reveal(self, name: str, *senders: str, **changes: bytes) -> Reveal:
        shares = {s: self.masked[s].shares[name] for s in senders or tuple(self.masked)}
        pieces = {"signatures": to_bundle(self.signatures), "shares": to_bundle(shares)}
        payload = to_bundle(pieces | changes)
        return Reveal(experiment=self.experiment.id, leg=self.leg, payload=payload)

    def total(self) -> bytes:
        """Finish honestly; return the sum as requests carry it."""
        data, members = memoryview(self.unmasked().to_bytes()), len(self.experiment.members)
        return Total(self.leg, members, self.cohort, tuple(self.masked), data).to_bytes()

    def unmasked(self) -> Vector:
        """Finish honestly; return the sum."""
        if not self.signatures:
            self.sign()
        study = self.experiment.study
        revealed = {
            name: expect(SharesRevealed, study.ask(name, self.reveal(name))).payload
            for name in self.masked
        }
        total = self.form.zeros()
        for masked in self.masked.values():
            total.add(masked.vector)
        least = threshold(len(self.experiment.members), self.experiment.descriptor.minimum_cohort)
        generation = self.experiment.secret("generation-digest")
        leg = SecureLeg(self.experiment.id, generation, self.leg, self.cohort, least)
        unmask(total, leg, tuple(self.masked), revealed)
        return total


def secure_study(names: tuple[str, ...] = NAMES, **chosen: Any) -> Study:
    study = new_study(names)
    for number, name in enumerate(names):
        in_process(study, name, partition(name, number), policy(plain_aggregation=False, **chosen))
    return study


@pytest.fixture
def first() -> Sum:
    """A first leg, before anybody was asked."""
    return Sum(secure_study().experiment(**SECURE), 1)


def with_sum(first: Sum, **changes: Any) -> tuple[Sum, dict[str, Any]]:
    """Finish the first leg; return the second, and what its requests carry."""
    first.mask()
    fields = {"carries": Carries.SUM, "payload": first.total()}
    return Sum(first.experiment, 2), fields | changes


def ask(sum_: Sum, request: Any, name: str = VICTIM) -> Reply:
    return sum_.experiment.study.ask(name, request)


# --- honest, so that the refusals below mean something --------------------------------------------


def test_honest_sums_are_the_mean_of_what_was_trained(first: Sum) -> None:
    second, carried = with_sum(first)
    second.mask(**carried)
    mean = Total.from_bytes(second.total()).mean(second.form)
    assert mean.weight == len(NAMES)
    for name, array in first.experiment.first_model.parameters.items():
        assert mean.model.parameters[name].shape == array.shape
        assert np.isfinite(mean.model.parameters[name]).all()
        assert (mean.model.parameters[name] != array).any()
    assert not mean.figures  # no policy allows any


# --- trip 1 ---------------------------------------------------------------------------------------

COHORTS: dict[str, tuple[str, ...] | None] = {
    "none: the model would be readable": None,
    "two members": ("Aspen", VICTIM),
    "without this hospital": OTHERS,
    "with a stranger": tuple(sorted((*NAMES, "Elm"))),
    "a member twice": ("Aspen", VICTIM, VICTIM, "Cedar"),
    "not sorted": NAMES[::-1],
    "nobody": (),
}


@pytest.mark.parametrize("cohort", COHORTS.values(), ids=COHORTS)
def test_no_vector_leaves_for_a_wrong_cohort(first: Sum, cohort: Any) -> None:
    assert refused(ask(first, first.train(VICTIM, cohort=cohort))) == Code.COHORT_REFUSED
    first.mask(VICTIM)  # nothing was spent


def test_one_cohort_per_leg(first: Sum) -> None:
    first.mask(VICTIM)
    other = first.train(VICTIM, cohort=("Aspen", VICTIM, "Cedar"))
    assert refused(ask(first, other)) == Code.CONFLICTING_REQUEST


def test_a_cohort_in_a_hand_over_is_refused() -> None:
    experiment = secure_study().experiment(averaging="secure", aggregation_period=10)
    request = experiment.request(VICTIM, cohort=NAMES)
    assert refused(experiment.study.ask(VICTIM, request)) == Code.COHORT_REFUSED


def test_sums_are_never_of_fewer_than_the_hospitals_minimum_cohort() -> None:
    """Two thirds of four members would be three: the descriptor must promise all four."""
    study = secure_study(minimum_cohort=4)
    too_few = Experiment(study, study.descriptor(**SECURE, minimum_cohort=3))
    assert refused(study.ask(VICTIM, too_few.set_up())) == Code.AGAINST_POLICY

    first = Sum(study.experiment(**SECURE, minimum_cohort=4), 1)
    three = first.train(VICTIM, cohort=NAMES[:3])
    assert refused(ask(first, three)) == Code.COHORT_REFUSED
    first.mask()
    assert refused(ask(first, first.survivors(*NAMES[:3]))) == Code.SURVIVORS_REFUSED
    first.sign()
    of_three = dict(list(first.signatures.items())[:3])
    request = first.reveal(VICTIM, signatures=to_bundle(of_three))
    assert refused(ask(first, request)) == Code.SHARES_REFUSED
    expect(SharesRevealed, ask(first, first.reveal(VICTIM)))


# --- trip 2 ---------------------------------------------------------------------------------------


def test_survivors_who_were_told_another_cohort_are_not_signed(first: Sum) -> None:
    first.mask(*(name for name in NAMES if name != "Cedar"))
    smaller = Sum(first.experiment, 1, ("Aspen", VICTIM, "Cedar"))
    smaller.mask("Cedar")
    first.masked |= smaller.masked

    assert refused(ask(first, first.survivors())) == Code.SURVIVORS_REFUSED
    without = [name for name in NAMES if name != "Cedar"]
    expect(Survivors, ask(first, first.survivors(*without)))


def test_survivors_who_were_given_another_aggregate_are_not_signed(first: Sum) -> None:
    """Two sums with right tags exist only if a member helps; all must still train on the same."""
    experiment = first.experiment
    second, carried = with_sum(first)
    second.mask(*OTHERS, **carried)
    # A member's key makes another sum with a right tag: here, one that survivors made of three.
    forged = forged_sum(experiment, carried["payload"])
    second.mask(VICTIM, carries=Carries.SUM, payload=forged)

    assert refused(ask(second, second.survivors())) == Code.SURVIVORS_REFUSED
    assert refused(ask(second, second.survivors(), "Aspen")) == Code.SURVIVORS_REFUSED


def forged_sum(experiment: Experiment, honest: bytes) -> bytes:
    """Change an honest sum, with the tag that a colluding member can compute."""
    total = Total.from_bytes(honest)
    model = experiment.first_model
    layouts = layout_of(model.parameters), layout_of(model.buffers)
    form = VectorForm(*layouts, members=len(NAMES))
    vector = form.from_bytes(total.vector).copy()
    vector.numbers[0] += np.uint64(2**32)
    leg = SecureLeg(
        experiment.id,
        experiment.secret("generation-digest"),
        total.leg,
        total.cohort,
        threshold(len(NAMES)),
    )
    add_tag(vector, tag_seed(experiment.secret("member-key"), leg))
    data = memoryview(vector.to_bytes())
    return Total(total.leg, total.members, total.cohort, total.survivors, data).to_bytes()


def test_too_few_survivors_or_made_up_ones_are_not_signed(first: Sum) -> None:
    first.mask()
    two = first.survivors("Aspen", VICTIM)
    absent = first.survivors(*OTHERS)
    swapped = {n: first.masked[n].statement.to_bytes() for n in NAMES}
    swapped["Aspen"], swapped["Cedar"] = swapped["Cedar"], swapped["Aspen"]
    wrong = first.survivors().model_copy(update={"payload": to_bundle(swapped)})
    for request in (two, absent, wrong, first.survivors().model_copy(update={"payload": b"?"})):
        assert refused(ask(first, request)) == Code.SURVIVORS_REFUSED
    expect(Survivors, ask(first, first.survivors()))


def test_one_survivor_set_per_leg_and_none_of_another_leg(first: Sum) -> None:
    first.mask()
    expect(Survivors, ask(first, first.survivors()))
    other = first.survivors("Aspen", VICTIM, "Cedar")
    assert refused(ask(first, other)) == Code.CONFLICTING_REQUEST
    later = first.survivors().model_copy(update={"leg": 2})
    assert refused(ask(first, later)) in (Code.OLD_LEG, Code.CONFLICTING_REQUEST)


# --- trip 3 ---------------------------------------------------------------------------------------


def test_nothing_is_revealed_without_survivors_signed_here(first: Sum) -> None:
    first.mask()
    first.sign(*OTHERS)
    assert refused(ask(first, first.reveal(VICTIM))) == Code.SURVIVORS_REFUSED


WRONG_REVEALS: dict[str, Callable[[Sum], Reveal]] = {
    "two signatures": lambda s: s.reveal(
        VICTIM, signatures=to_bundle(dict(list(s.signatures.items())[:2]))
    ),
    "a signature under another name": lambda s: s.reveal(
        VICTIM,
        signatures=to_bundle(
            {"Aspen": s.signatures["Aspen"], VICTIM: s.signatures[VICTIM]}
            | {"Cedar": s.signatures["Durmast"]}
        ),
    ),
    "shares of one survivor missing": lambda s: s.reveal(VICTIM, "Aspen", VICTIM, "Cedar"),
    "shares sealed for another": lambda s: s.reveal(
        VICTIM, shares=to_bundle({n: s.masked[n].shares["Cedar"] for n in NAMES})
    ),
    "one member's shares twice": lambda s: s.reveal(
        VICTIM,
        shares=to_bundle(
            {n: s.masked[n].shares[VICTIM] for n in NAMES}
            | {"Cedar": s.masked["Aspen"].shares[VICTIM]}
        ),
    ),
    "no bundle": lambda s: s.reveal(VICTIM).model_copy(update={"payload": b"\1"}),
}


@pytest.mark.parametrize("made", WRONG_REVEALS.values(), ids=WRONG_REVEALS)
def test_shares_are_revealed_for_signed_survivors_only(
    first: Sum, made: Callable[[Sum], Reveal]
) -> None:
    first.mask()
    first.sign()
    assert refused(ask(first, made(first))) == Code.SHARES_REFUSED
    expect(SharesRevealed, ask(first, first.reveal(VICTIM)))


def test_both_kinds_of_shares_for_one_member_are_never_revealed(first: Sum) -> None:
    """Once as survivor, once as dropped out, would open its vector: a leg has one set."""
    first.mask()
    first.sign()
    everybody = expect(SharesRevealed, ask(first, first.reveal(VICTIM)))
    again = first.reveal(VICTIM, "Aspen", VICTIM, "Cedar")
    assert refused(ask(first, again)) == Code.CONFLICTING_REQUEST
    # Asked for the same again, it gives the same: four self seeds and no pair seed.
    assert ask(first, first.reveal(VICTIM)) == everybody
    assert len(everybody.payload) == 4 * 33


def test_what_was_asked_before_is_not_answered_in_a_later_leg(first: Sum) -> None:
    first.mask()
    old = first.survivors()
    first.sign()
    second, carried = (
        Sum(first.experiment, 2),
        {
            "carries": Carries.SUM,
            "payload": first.total(),
        },
    )
    second.mask(VICTIM, **carried)
    assert refused(ask(first, old)) == Code.OLD_LEG
    assert refused(ask(first, first.reveal(VICTIM))) == Code.OLD_LEG
    moved = old.model_copy(update={"leg": 2})
    assert refused(ask(first, moved)) == Code.SURVIVORS_REFUSED


# --- made-up sums ---------------------------------------------------------------------------------


def changed(honest: bytes, place: int, change: int) -> bytes:
    """Add to one number of a sum's vector, counted from its end for extras."""
    total = Total.from_bytes(honest)
    words = np.frombuffer(total.vector, "<i8").copy()
    words[place] += change
    data = memoryview(words.tobytes())
    return Total(total.leg, total.members, total.cohort, total.survivors, data).to_bytes()


def zero(honest: bytes) -> bytes:
    total = Total.from_bytes(honest)
    data = memoryview(bytes(len(total.vector)))
    return Total(total.leg, total.members, total.cohort, total.survivors, data).to_bytes()


def relabelled(honest: bytes, **changes: Any) -> bytes:
    total = Total.from_bytes(honest)
    fields = {n: getattr(total, n) for n in ("leg", "members", "cohort", "survivors", "vector")}
    return Total(**fields | changes).to_bytes()


SUMS: dict[str, Callable[[bytes], bytes]] = {
    "one number more": lambda honest: changed(honest, 0, 1),
    "another weight": lambda honest: changed(honest, -14, -1),
    "another tag": lambda honest: changed(honest, -1, 1),
    "all zeros": zero,
    "of another leg": lambda honest: relabelled(honest, leg=2),
    "of another cohort": lambda honest: relabelled(honest, cohort=NAMES[:3], survivors=NAMES[:3]),
    "of fewer survivors": lambda honest: relabelled(honest, survivors=NAMES[:2]),
    "of more members": lambda honest: relabelled(honest, members=40),
    "truncated": lambda honest: honest[:-8],
    "nothing": lambda honest: b"",
    "no sum at all": lambda honest: b"\xff" * 40,
}


@pytest.mark.parametrize("made", SUMS.values(), ids=SUMS)
def test_a_sum_that_members_did_not_make_is_not_trained_on(
    first: Sum, made: Callable[[bytes], bytes]
) -> None:
    """Before, any made-up aggregate was trained on, and showed patients."""
    second, carried = with_sum(first)
    request = second.train(VICTIM, **carried | {"payload": made(carried["payload"])})
    assert refused(ask(second, request)) == Code.SUM_REFUSED
    second.mask(VICTIM, **carried)


def test_a_readable_aggregate_is_no_substitute_for_a_sum(first: Sum) -> None:
    second, _ = with_sum(first)
    model: ModelState = first.experiment.first_model
    request = second.train(VICTIM, carries=Carries.AGGREGATE, payload=model.to_bytes())
    assert refused(ask(second, request)) == Code.SUM_REFUSED


def test_an_old_sum_is_refused(first: Sum) -> None:
    second, carried = with_sum(first)
    second.mask(**carried)
    second.total()
    third = Sum(first.experiment, 3)
    assert refused(ask(third, third.train(VICTIM, **carried))) == Code.SUM_REFUSED


def test_the_final_model_must_be_the_last_legs_sum() -> None:
    experiment = secure_study().experiment(**SECURE, rounds=2)
    second, carried = with_sum(Sum(experiment, 1))
    second.mask(**carried)
    last = second.total()
    for wrong in (carried["payload"], changed(last, 0, 1), b""):
        assert refused(ask(second, Close(experiment=experiment.id, payload=wrong))) == (
            Code.SUM_REFUSED
        )
    closed = expect(Closed, ask(second, Close(experiment=experiment.id, payload=last)))
    assert closed.held_out_accuracy is None


# --- what is logged -------------------------------------------------------------------------------


def test_every_refusal_and_the_size_of_each_sum_are_in_the_audit_log(first: Sum) -> None:
    class RecordingStore(MappingStore):
        def append_audit(self, line: bytes) -> None:
            replies.append(json.loads(line)["reply"])

    study, replies = first.experiment.study, []
    hospital = study.hospitals[VICTIM]
    assert isinstance(hospital, Hospital)
    study.hospitals[VICTIM] = hospital.with_store(RecordingStore(study.memories[VICTIM]))
    first.mask()
    refused(ask(first, first.survivors("Aspen", VICTIM)))
    first.total()

    assert [reply.get("refusal") for reply in replies] == [None, Code.SURVIVORS_REFUSED, None, None]
    assert [reply.get("readable") for reply in replies] == [False, None, None, "sum of 4"]


def test_no_masked_vector_contains_the_model(first: Sum) -> None:
    first.mask()
    assert isinstance(first.form, VectorForm)
    model = first.form.encode(first.experiment.first_model).numbers
    for masked in first.masked.values():
        assert not np.intersect1d(masked.vector.numbers, model).size
        assert from_bundle(to_bundle(masked.shares)).keys() == set(NAMES)
