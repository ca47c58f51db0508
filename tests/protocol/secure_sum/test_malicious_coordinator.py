"""What a malicious coordinator can try on members in the three trips, and what it learns."""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pytest

from protocol.secure_sum import shamir
from protocol.secure_sum.masks import add_masks
from protocol.secure_sum.member import MaskedVector, Member
from protocol.secure_sum.secure_leg import SecureLeg, SecureSumError, most_colluding, threshold
from protocol.secure_sum.seed_shares import open_shares
from protocol.secure_sum.seeds import leg_pair_seed
from protocol.secure_sum.shamir import SHARE_BYTES
from protocol.secure_sum.statements import Statement, make_statement
from tests.protocol.secure_sum.members import (
    AGGREGATE,
    form_for,
    make_leg,
    make_members,
    make_model,
)

COUNT = 10
MEMBERS = make_members(COUNT)
NAMES = tuple(MEMBERS)
LEG = make_leg(MEMBERS)
FORM = form_for(make_model(0), COUNT)


@pytest.fixture(scope="module")
def masked() -> dict[str, MaskedVector]:
    return {
        name: MEMBERS[name].mask(LEG, FORM.encode(make_model(number)), aggregate=AGGREGATE)
        for number, name in enumerate(NAMES)
    }


def statements_of(
    masked: Mapping[str, MaskedVector], names: Collection[str] = NAMES
) -> dict[str, Statement]:
    return {name: masked[name].statement for name in names}


def shares_for(
    name: str, masked: Mapping[str, MaskedVector], senders: Collection[str] = NAMES
) -> dict[str, bytes]:
    return {sender: masked[sender].shares[name] for sender in senders}


def signed_survivors(
    masked: Mapping[str, MaskedVector], survivors: Collection[str] = NAMES
) -> dict[str, bytes]:
    statements = statements_of(masked, survivors)
    return {
        name: MEMBERS[name].sign_survivors(
            LEG, statements, own=statements[name], aggregate=AGGREGATE
        )
        for name in survivors
    }


def other_legs() -> dict[str, SecureLeg]:
    return {
        "another leg": replace(LEG, leg=8),
        "another experiment": replace(LEG, experiment="e2"),
        "another generation": replace(LEG, generation=b"h" * 32),
        "a smaller cohort": replace(LEG, cohort=NAMES[1:]),
        "a lower threshold": replace(LEG, threshold=2),
    }


# --- trip 1 ---------------------------------------------------------------------------------------


def test_no_vector_for_a_cohort_that_the_member_is_not_in() -> None:
    with pytest.raises(SecureSumError, match="not in the cohort"):
        MEMBERS["h000"].mask(make_leg(NAMES[1:]), FORM.encode(make_model(0)), aggregate=AGGREGATE)


# --- trip 2 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", list(other_legs()))
def test_survivors_that_were_told_another_leg_or_cohort_are_not_signed(
    masked: dict[str, MaskedVector], other: str
) -> None:
    leg = other_legs()[other]
    victim, liar = MEMBERS["h000"], MEMBERS["h003"]
    made = liar.mask(leg, FORM.encode(make_model(3)), aggregate=AGGREGATE)
    statements = statements_of(masked) | {"h003": made.statement}

    with pytest.raises(SecureSumError, match="h003 did not sign this leg, cohort and aggregate"):
        victim.sign_survivors(LEG, statements, own=statements["h000"], aggregate=AGGREGATE)


def test_survivors_that_were_given_another_aggregate_are_not_signed(
    masked: dict[str, MaskedVector],
) -> None:
    other = make_statement(
        LEG,
        MEMBERS["h003"].identity,
        name="h003",
        aggregate=bytes(32),
        vector=masked["h003"].statement.vector,
    )
    statements = statements_of(masked) | {"h003": other}
    with pytest.raises(SecureSumError, match="h003 did not sign"):
        MEMBERS["h000"].sign_survivors(LEG, statements, own=statements["h000"], aggregate=AGGREGATE)


def test_survivors_below_the_threshold_or_without_the_member_are_not_signed(
    masked: dict[str, MaskedVector],
) -> None:
    member, own = MEMBERS["h000"], masked["h000"].statement
    too_few = statements_of(masked, NAMES[: LEG.threshold - 1])
    without = statements_of(masked, NAMES[1:])
    another = statements_of(masked) | {"h000": replace(own, vector=bytes(32))}
    outside = statements_of(masked) | {"nobody": own}
    for statements, why in (
        (too_few, "needed"),
        (without, "do not include"),
        (another, "do not include"),
        (outside, "not in the cohort"),
    ):
        with pytest.raises(SecureSumError, match=why):
            member.sign_survivors(LEG, statements, own=own, aggregate=AGGREGATE)


# --- trip 3 ---------------------------------------------------------------------------------------


def test_nothing_is_revealed_without_t_signatures_over_the_same_survivors(
    masked: dict[str, MaskedVector],
) -> None:
    survivors = NAMES[:8]
    statements = statements_of(masked, survivors)
    signatures = signed_survivors(masked, survivors)
    few = dict(list(signatures.items())[: LEG.threshold - 1])
    of_everybody = signed_survivors(masked)
    for given, why in (
        (few, "needed"),
        (few | {"h007": signatures["h006"]}, "h007 did not sign these survivors"),
        (few | {"h007": of_everybody["h007"]}, "h007 did not sign these survivors"),
        (few | {"h009": of_everybody["h009"]}, "needed"),  # not a survivor
    ):
        with pytest.raises(SecureSumError, match=why):
            MEMBERS["h000"].reveal(LEG, statements, given, shares_for("h000", masked, survivors))


def test_shares_of_another_recipient_leg_or_sender_are_refused(
    masked: dict[str, MaskedVector],
) -> None:
    statements, signatures = statements_of(masked), signed_survivors(masked)
    right = shares_for("h000", masked)
    later = MEMBERS["h001"].mask(
        replace(LEG, leg=8), FORM.encode(make_model(1)), aggregate=AGGREGATE
    )
    for wrong in (
        right | {"h001": masked["h001"].shares["h002"]},
        right | {"h001": later.shares["h000"]},
        right | {"h001": masked["h002"].shares["h000"]},
        right | {"h001": b""},
    ):
        with pytest.raises(
            SecureSumError, match=r"the shares of h001|h001 did not sign its shares"
        ):
            MEMBERS["h000"].reveal(LEG, statements, signatures, wrong)
    with pytest.raises(SecureSumError, match="shares of every survivor"):
        MEMBERS["h000"].reveal(LEG, statements, signatures, {**right, "nobody": b""})


@pytest.mark.parametrize("survivors", [NAMES, NAMES[:8], NAMES[3:]])
def test_what_is_revealed_are_self_seeds_of_survivors_and_pair_seeds_with_the_dropped(
    masked: dict[str, MaskedVector], survivors: tuple[str, ...]
) -> None:
    statements = statements_of(masked, survivors)
    signatures = signed_survivors(masked, survivors)
    dropped = [name for name in NAMES if name not in survivors]
    member = MEMBERS[survivors[0]]

    revealed = member.reveal(
        LEG, statements, signatures, shares_for(member.name, masked, survivors)
    )

    opened = {
        sender: open_shares(
            LEG,
            masked[sender].shares[member.name],
            sender=sender,
            recipient=member.name,
            sender_identity=member.identities[sender],
            key=member.sealing_key,
            member_key=member.member_key,
        )
        for sender in survivors
    }
    allowed = [opened[sender][name] for sender in survivors for name in (sender, *dropped)]
    pieces = [revealed[at : at + SHARE_BYTES] for at in range(0, len(revealed), SHARE_BYTES)]
    assert pieces == allowed


# --- what everything together reveals -------------------------------------------------------------


def test_with_the_secrets_of_c_members_no_sum_of_fewer_than_t_minus_c_can_be_isolated() -> None:
    """Search all subsets: which honest vectors' sums lose their masks, given all that is known?

    Known are the masked vectors, what honest members revealed for one survivor set, and everything
    the c colluding members know. A sum of honest vectors is readable if every mask in it cancels or
    has a known seed.
    """
    count = 7
    members = make_members(count)
    names = tuple(members)
    leg, t, c = make_leg(members), threshold(count), most_colluding(count)
    form = form_for(make_model(0), count)
    models = {name: make_model(number) for number, name in enumerate(names)}
    plain = {name: form.encode(model) for name, model in models.items()}
    masked = {
        name: members[name].mask(leg, form.encode(models[name]), aggregate=AGGREGATE)
        for name in names
    }
    colluding, honest = names[:c], names[c:]
    survivors = names[: t - c] + names[-c:]  # the smallest set, with every colluding member in it
    seeds = known_seeds(members, leg, masked, survivors, colluding)

    smallest = count
    for size in range(1, len(honest) + 1):
        for chosen in itertools.combinations(honest, size):
            total = form.zeros()
            for name in chosen:
                total.add(masked[name].vector)
                for plus, minus in removed(name, chosen, names, seeds):
                    add_masks(total, plus, minus)
            expected = sum(plain[name].numbers for name in chosen)
            if (total.numbers == expected).all():
                smallest = min(smallest, size)
    # Exactly the honest survivors' sum, and no smaller one.
    assert smallest == len([name for name in survivors if name not in colluding]) == t - c


def known_seeds(
    members: Mapping[str, Member],
    leg: SecureLeg,
    masked: Mapping[str, MaskedVector],
    survivors: Collection[str],
    colluding: Collection[str],
) -> dict[tuple[str, str], bytes]:
    """Return every seed, by owner and other, that the coordinator and the colluding can compute."""
    statements = {name: masked[name].statement for name in survivors}
    signatures = {
        name: members[name].sign_survivors(
            leg, statements, own=statements[name], aggregate=AGGREGATE
        )
        for name in survivors
    }
    shares: dict[tuple[str, str], dict[int, bytes]] = {}
    dropped = leg.dropped(survivors)
    for name in survivors:
        data = members[name].reveal(
            leg, statements, signatures, {s: masked[s].shares[name] for s in survivors}
        )
        places = [(owner, other) for owner in sorted(survivors) for other in (owner, *dropped)]
        for at, place in enumerate(places):
            share = data[at * SHARE_BYTES : (at + 1) * SHARE_BYTES]
            shares.setdefault(place, {})[leg.point(name)] = share
    for name in colluding:  # they open everything sealed for them, from every member
        for sender in members:
            opened = open_shares(
                leg,
                masked[sender].shares[name],
                sender=sender,
                recipient=name,
                sender_identity=members[sender].identity.public,
                key=members[name].sealing_key,
                member_key=members[name].member_key,
            )
            for other, share in opened.items():
                shares.setdefault((sender, other), {})[leg.point(name)] = share
    seeds = {
        place: shamir.combine(dict(list(given.items())[: leg.threshold]))
        for place, given in shares.items()
        if len(given) >= leg.threshold
    }
    for name in colluding:
        for other, key in members[name].pair_keys.items():
            seeds[name, other] = seeds[other, name] = leg_pair_seed(key, leg)
    for owner, other in list(seeds):
        seeds[other, owner] = seeds[owner, other]
    return seeds


def removed(
    name: str,
    chosen: Collection[str],
    names: Collection[str],
    seeds: Mapping[tuple[str, str], bytes],
) -> list[tuple[list[bytes], list[bytes]]]:
    """Return the masks of one vector that a known seed can remove."""
    found: list[tuple[list[bytes], list[bytes]]] = []
    for other in names:
        seed = seeds.get((name, other))
        if seed is not None and (other == name or other not in chosen):
            found.append(([], [seed]) if name <= other else ([seed], []))
    return found


def test_equal_models_of_two_members_look_unrelated_under_masks() -> None:
    vectors = []
    for name in ("h000", "h001"):
        made = MEMBERS[name].mask(LEG, FORM.encode(make_model(0)), aggregate=AGGREGATE)
        vectors.append(made.vector.numbers)
    assert not np.intersect1d(vectors[0], vectors[1]).size
