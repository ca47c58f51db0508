"""A malicious coordinator with c colluding members: what they read together, in process.

They know everything that passed, and everything the colluding members store. Honest hospitals are
asked whatever helps; what they refuse is not known. A sum of honest vectors is readable if all its
masks can be removed, which the tag tells: with a member's key it can be checked.
"""

import itertools
from collections.abc import Callable, Collection, Mapping

import pytest

from protocol.messages import Carries, RefusalCode, Reveal, SharesRevealed, SignSurvivors, Survivors
from protocol.sealing.bundle import from_bundle, to_bundle
from protocol.sealing.keys import SealingKey
from protocol.secure_sum import shamir
from protocol.secure_sum.masks import add_masks, pair_masks
from protocol.secure_sum.secure_leg import SecureLeg, SecureSumError, most_colluding, threshold
from protocol.secure_sum.seed_shares import open_shares
from protocol.secure_sum.seeds import leg_pair_seed, tag_seed
from protocol.secure_sum.shamir import SHARE_BYTES
from protocol.secure_sum.statements import sign_survivors
from protocol.secure_sum.tag import add_tag, check_tag
from protocol.secure_sum.total import Total
from tests.attacks.study import VICTIM, expect, real_agent, refused, whole_study
from tests.attacks.test_evil_coordinator_figures import HELD_OUT, SEVEN, ClosingSum, close_to
from tests.attacks.test_evil_coordinator_sums import SECURE, Sum, ask, secure_study

Code = RefusalCode
MEMBERS = len(SEVEN)
T, C = threshold(MEMBERS), most_colluding(MEMBERS)
COLLUDING, HONEST = SEVEN[:C], SEVEN[C:]
Seeds = dict[tuple[str, str], bytes]


def first_leg() -> Sum:
    return Sum(secure_study(SEVEN).experiment(**SECURE), 1, SEVEN)


def closing_sum() -> ClosingSum:
    return close_to(secure_study(SEVEN, **HELD_OUT))


def leg_of(attacked: Sum) -> SecureLeg:
    experiment = attacked.experiment
    least = threshold(MEMBERS, experiment.descriptor.minimum_cohort)
    generation = experiment.secret("generation-digest")
    return SecureLeg(experiment.id, generation, attacked.leg, attacked.cohort, least)


def known_seeds(attacked: Sum, survivors: Collection[str], revealed: Mapping[str, bytes]) -> Seeds:
    """Return the seeds, by owner and other, that coordinator and colluding members can compute."""
    leg, experiment = leg_of(attacked), attacked.experiment
    dropped = leg.dropped(survivors)
    places = [(owner, other) for owner in sorted(survivors) for other in (owner, *dropped)]
    shares: dict[tuple[str, str], dict[int, bytes]] = {}
    for name, data in revealed.items():
        for at, place in enumerate(places):
            share = data[at * SHARE_BYTES : (at + 1) * SHARE_BYTES]
            shares.setdefault(place, {})[leg.point(name)] = share
    seeds: Seeds = {}
    for name in COLLUDING:
        for sender, masked in attacked.masked.items():
            opened = open_shares(
                leg,
                masked.shares[name],
                sender=sender,
                recipient=name,
                sender_identity=experiment.study.identities[sender].public,
                key=SealingKey.from_bytes(experiment.secret("sealing-key", name)),
                member_key=experiment.secret("member-key", name),
            )
            for other, share in opened.items():
                shares.setdefault((sender, other), {})[leg.point(name)] = share
        for other, key in from_bundle(experiment.secret("pair-keys", name)).items():
            seeds[name, other] = seeds[other, name] = leg_pair_seed(key, leg)
    for (owner, other), given in shares.items():
        if len(given) >= leg.threshold:
            seed = shamir.combine(dict(list(given.items())[: leg.threshold]))
            seeds[owner, other] = seeds[other, owner] = seed
    return seeds


def smallest_readable(attacked: Sum, seeds: Seeds) -> int:
    """Try all sets of honest members; return the size of the smallest whose sum can be read."""
    leg, sent = leg_of(attacked), [name for name in HONEST if name in attacked.masked]
    tag = tag_seed(attacked.experiment.secret("member-key"), leg)
    for size in range(1, len(sent) + 1):
        for chosen in itertools.combinations(sent, size):
            total = attacked.form.zeros()
            for name in chosen:
                total.add(attacked.masked[name].vector)
                outside = [other for other in SEVEN if other not in chosen]
                known = {other: seeds[name, other] for other in outside if (name, other) in seeds}
                plus, minus = pair_masks(name, known)
                own = [seeds[name, name]] if (name, name) in seeds else []
                add_masks(total, minus, [*plus, *own])
            try:
                check_tag(total, tag)
            except SecureSumError:
                continue
            return size
    return MEMBERS


def collude(attacked: Sum, survivors: Collection[str]) -> dict[str, bytes]:
    """Return the colluding members' signatures over any survivors: they sign as often as asked."""
    leg, identities = leg_of(attacked), attacked.experiment.study.identities
    statements = {name: attacked.masked[name].statement for name in survivors}
    return {n: sign_survivors(leg, identities[n], statements) for n in COLLUDING if n in survivors}


def signed_by(attacked: Sum, request: SignSurvivors, *names: str) -> dict[str, bytes]:
    replies = {name: ask(attacked, request, name) for name in names}
    return {name: reply.payload for name, reply in replies.items() if isinstance(reply, Survivors)}


def reveals(
    attacked: Sum, survivors: Collection[str], signatures: Mapping[str, bytes], *names: str
) -> dict[str, bytes]:
    """Ask honest members to reveal shares; return what they do not refuse."""
    found = {}
    for name in names:
        shares = {sender: attacked.masked[sender].shares[name] for sender in survivors}
        pieces = {"signatures": to_bundle(signatures), "shares": to_bundle(shares)}
        request = Reveal(
            experiment=attacked.experiment.id, leg=attacked.leg, payload=to_bundle(pieces)
        )
        reply = ask(attacked, request, name)
        if isinstance(reply, SharesRevealed):
            found[name] = reply.payload
    return found


SUMS: dict[str, Callable[[], Sum]] = {"of models": first_leg, "of figures": closing_sum}


@pytest.mark.parametrize("make", SUMS.values(), ids=SUMS)
def test_with_c_members_no_sum_of_fewer_than_t_minus_c_hospitals_is_read(
    make: Callable[[], Sum],
) -> None:
    """The smallest survivor set, all colluding members in it, and others for the rest."""
    attacked = make()
    attacked.mask()
    first = (*COLLUDING, *HONEST[: T - C])
    second = (*COLLUDING, *HONEST[-(T - C) :])
    asked_for_second = [name for name in HONEST if name not in first]
    signatures = collude(attacked, first) | signed_by(
        attacked, attacked.survivors(*first), *HONEST[: T - C]
    )
    others = collude(attacked, second) | signed_by(
        attacked, attacked.survivors(*second), *asked_for_second
    )
    # Whoever has signed the first set does not sign the second.
    for name in set(HONEST[: T - C]) & set(second):
        assert refused(ask(attacked, attacked.survivors(*second), name)) == Code.CONFLICTING_REQUEST
    revealed = reveals(attacked, first, signatures, *HONEST)
    assert set(revealed) == set(HONEST[: T - C])
    assert len(others) < T
    assert reveals(attacked, second, others, *HONEST) == {}

    assert smallest_readable(attacked, known_seeds(attacked, first, revealed)) == T - C


@pytest.mark.parametrize("make", SUMS.values(), ids=SUMS)
def test_different_survivors_for_different_hospitals_open_one_sum_at_most(
    make: Callable[[], Sum],
) -> None:
    attacked = make()
    attacked.mask()
    halves = {(*SEVEN[:5],): HONEST[:2], (*COLLUDING, *HONEST[2:]): HONEST[2:], SEVEN: ()}
    seeds: Seeds = {}
    for survivors, told in halves.items():
        signatures = collude(attacked, survivors)
        signatures |= signed_by(attacked, attacked.survivors(*survivors), *told)
        revealed = reveals(attacked, survivors, signatures, *HONEST)
        is_signed = len(signatures) >= T
        assert set(revealed) == (set(told) if is_signed else set())
        seeds |= known_seeds(attacked, survivors, revealed)
    # One of the sets was signed by t; nothing smaller than its honest part is open.
    assert smallest_readable(attacked, seeds) == T - C


def test_replies_of_another_experiment_are_of_no_use() -> None:
    study = secure_study(SEVEN)
    old, new = (Sum(study.experiment(**SECURE), 1, SEVEN) for _ in range(2))
    old.mask()
    old.sign()
    new.mask()
    mixed = {name: new.masked[name].statement.to_bytes() for name in SEVEN}
    mixed["Cedar"] = old.masked["Cedar"].statement.to_bytes()
    replayed = new.survivors().model_copy(update={"payload": to_bundle(mixed)})
    assert refused(ask(new, replayed)) == Code.SURVIVORS_REFUSED
    expect(Survivors, ask(new, new.survivors()))
    new.signatures = old.signatures
    assert refused(ask(new, new.reveal(VICTIM))) == Code.SHARES_REFUSED
    new.signatures = {}
    new.sign()
    shares = {name: new.masked[name].shares[VICTIM] for name in SEVEN}
    shares["Cedar"] = old.masked["Cedar"].shares[VICTIM]
    request = new.reveal(VICTIM, shares=to_bundle(shares))
    assert refused(ask(new, request)) == Code.SHARES_REFUSED


FORGED: dict[str, tuple[int, int]] = {
    "a weight of one more": (-14, 1),
    "a weight of one": (-14, 1 - MEMBERS),
    "no weight": (-14, -MEMBERS),
    "a number out of range": (0, 2**61),
}


@pytest.mark.parametrize(("place", "change"), FORGED.values(), ids=FORGED)
def test_even_with_a_right_tag_weights_and_numbers_must_be_possible(
    place: int, change: int
) -> None:
    """A member's key makes the tag right; chosen weights would scale the model at will."""
    first = first_leg()
    first.mask()
    honest = Total.from_bytes(first.total())
    vector = first.form.from_bytes(honest.vector).copy()
    words = vector.numbers if place >= 0 else vector.extras
    words.view("<i8")[place] += change
    add_tag(vector, tag_seed(first.experiment.secret("member-key"), leg_of(first)))
    data = memoryview(vector.to_bytes())
    forged = Total(1, MEMBERS, SEVEN, honest.survivors, data).to_bytes()
    second = Sum(first.experiment, 2, SEVEN)
    request = second.train(VICTIM, carries=Carries.SUM, payload=forged)
    assert refused(ask(second, request)) == Code.SUM_REFUSED


@pytest.mark.slow
def test_a_real_agent_refuses_and_logs_what_a_hospital_in_process_refuses() -> None:
    study = whole_study()
    with real_agent(study, VICTIM, plain_aggregation="false") as agent:
        first = Sum(study.experiment(**SECURE), 1)
        two = first.train(VICTIM, cohort=("Aspen", VICTIM))
        assert refused(ask(first, two)) == Code.COHORT_REFUSED
        first.mask()
        assert refused(ask(first, first.survivors("Aspen", VICTIM))) == Code.SURVIVORS_REFUSED
        first.sign()
        signatures = to_bundle(dict(list(first.signatures.items())[:2]))
        request = first.reveal(VICTIM, signatures=signatures)
        assert refused(ask(first, request)) == Code.SHARES_REFUSED
        expect(SharesRevealed, ask(first, first.reveal(VICTIM)))
        log = agent.log.read_text()
    for code in (Code.COHORT_REFUSED, Code.SURVIVORS_REFUSED, Code.SHARES_REFUSED):
        assert f"refused, {code}" in log
