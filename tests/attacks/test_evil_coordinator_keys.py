"""An evil coordinator against a real agent: announcements and key shares.

The rules themselves are tested in tests/protocol/test_membership_*.py.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.messages import (
    Announcement,
    Close,
    ExchangeKeyShares,
    KeyShares,
    OpenKeyShares,
    Ready,
    SetUp,
)
from protocol.sealing.bundle import from_bundle, to_bundle
from protocol.sealing.keys import Identity, SealingKey
from protocol.sealing.membership import PAIR_SECRET_BYTES, Announced, announce, seal_key_shares
from tests.attacks.siege import STRANGER, Code, Siege, close, flipped
from tests.attacks.study import TRAINING, VICTIM, Experiment, expect, refused


def announced_by(
    identity: Identity, name: str = "Cedar", key: SealingKey | None = None, **changes: Any
) -> Callable[[Experiment], dict[str, bytes]]:
    """Put a key into the list, signed by `identity` as the announcement of `name`."""

    def announcements(experiment: Experiment) -> dict[str, bytes]:
        place: dict[str, Any] = {
            "name": name,
            "experiment": experiment.id,
            "roster": experiment.study.roster,
        }
        made = announce(identity, key or SealingKey.generate(), **(place | changes))
        return experiment.announced | {name: made.to_bytes()}

    return announcements


def edited(
    change: Callable[[dict[str, bytes]], dict[str, bytes]],
) -> Callable[[Experiment], dict[str, bytes]]:
    return lambda experiment: change(dict(experiment.announced))


def of_small_order(experiment: Experiment) -> dict[str, bytes]:
    """Let a member announce, and properly sign, a key with which anybody could open."""
    study, key = experiment.study, SealingKey.generate()
    weak = key.public[:-32] + bytes(32)
    parts = (b"Aspen", experiment.id.encode(), study.roster.digest, weak)  # docs/envelope.md
    statement = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    signature = study.identities["Aspen"].sign("announcement", statement)
    return experiment.announced | {"Aspen": Announced("Aspen", weak, signature).to_bytes()}


LISTS: dict[str, Callable[[Experiment], dict[str, bytes] | bytes]] = {
    "the coordinator's own key": lambda e: announced_by(e.study.coordinator)(e),
    "a key signed by a non-member": announced_by(STRANGER),
    "a key signed by another member": lambda e: announced_by(e.study.identities["Aspen"])(e),
    "a key in the victim's own name": lambda e: announced_by(e.study.coordinator, VICTIM)(e),
    "a key that the victim signed, but did not announce": lambda e: announced_by(
        e.study.identities[VICTIM], VICTIM
    )(e),
    "a key for another experiment": lambda e: announced_by(
        e.study.identities["Cedar"], experiment="e0"
    )(e),
    "a key for another roster": lambda e: announced_by(
        e.study.identities["Cedar"], roster=replace(e.study.roster, generation=2)
    )(e),
    "a key of small order": of_small_order,
    "a member too few": edited(lambda a: {n: d for n, d in a.items() if n != "Cedar"}),
    "a member too many": announced_by(STRANGER, "Elder"),
    "two members exchanged": edited(lambda a: a | {"Aspen": a["Cedar"], "Cedar": a["Aspen"]}),
    "one announcement twice": edited(lambda a: a | {"Aspen": a["Cedar"]}),
    "a flipped byte": edited(lambda a: a | {"Cedar": flipped(5)(a["Cedar"])}),
    "an announcement cut off": edited(lambda a: a | {"Cedar": a["Cedar"][:-1]}),
    "nobody": lambda _: b"",
    "a name without an announcement": edited(lambda _: {"": b""}),
    "bytes that are not a bundle": lambda _: b"\xff",
    "twenty thousand strangers": edited(lambda _: {f"{n:05}": b"" for n in range(20_000)}),
}


@pytest.mark.parametrize("attack", LISTS)
def test_announcements_are_refused(attack: str, siege: Siege) -> None:
    experiment = Experiment(siege.study, siege.study.descriptor())
    experiment.agree()

    shown = LISTS[attack](experiment)
    payload = shown if isinstance(shown, bytes) else to_bundle(shown)
    request = ExchangeKeyShares(experiment=experiment.id, payload=payload)
    siege.refuses(request, Code.KEYS_REFUSED)
    siege.refuses(experiment.request(VICTIM), Code.NOT_SET_UP)

    expect(KeyShares, siege.study.ask(VICTIM, experiment.exchange()))
    close(siege.study, experiment)


def sealed_key_share(of: Experiment, identity: Identity, name: str, **changes: Any) -> bytes:
    """Seal a key share for the victim, signed by `identity` in the name of `name`."""
    place = {
        "experiment": of.id,
        "generation": of.secret("generation-digest"),
        "announcements": [Announced.from_bytes(n, d) for n, d in of.announced.items()],
    }
    secrets = dict.fromkeys(of.announced, bytes(PAIR_SECRET_BYTES))
    return seal_key_shares(bytes(32), secrets, identity, name=name, **(place | changes))[VICTIM]


KEY_SHARES: dict[str, Callable[[Experiment], dict[str, bytes]]] = {
    "the coordinator's own key share": lambda e: {
        "Cedar": sealed_key_share(e, e.study.coordinator, "Cedar")
    },
    "another member's key share": lambda e: {"Cedar": e.key_shares["Aspen"][VICTIM]},
    "a key share for another member": lambda e: {"Cedar": e.key_shares["Cedar"]["Durmast"]},
    "a key share of another experiment": lambda e: {
        "Cedar": sealed_key_share(e, e.study.identities["Cedar"], "Cedar", experiment="e0")
    },
    "a key share of another generation": lambda e: {
        "Cedar": sealed_key_share(e, e.study.identities["Cedar"], "Cedar", generation=bytes(32))
    },
    "a flipped byte": lambda e: {"Cedar": flipped(-1)(e.key_shares["Cedar"][VICTIM])},
    "a key share cut off": lambda e: {"Cedar": e.key_shares["Cedar"][VICTIM][:-1]},
    "an empty key share": lambda _: {"Cedar": b""},
    "two members exchanged": lambda e: {
        "Aspen": e.key_shares["Cedar"][VICTIM],
        "Cedar": e.key_shares["Aspen"][VICTIM],
    },
    "a key share of the victim's own": lambda e: {VICTIM: e.key_shares["Cedar"][VICTIM]},
    "a stranger's key share": lambda e: {"Elder": sealed_key_share(e, STRANGER, "Elder")},
}


@pytest.mark.parametrize("attack", KEY_SHARES)
def test_key_shares_are_refused(attack: str, siege: Siege) -> None:
    experiment = Experiment(siege.study, siege.study.descriptor())
    experiment.agree()
    experiment.exchange_all()
    honest = {
        name: sealed[VICTIM] for name, sealed in experiment.key_shares.items() if name != VICTIM
    }

    siege.refuses(
        experiment.open(VICTIM, honest | KEY_SHARES[attack](experiment)), Code.KEYS_REFUSED
    )
    fewer = {name: data for name, data in honest.items() if name != "Cedar"}
    siege.refuses(experiment.open(VICTIM, fewer), Code.KEYS_REFUSED)

    expect(Ready, siege.study.ask(VICTIM, experiment.open(VICTIM)))
    close(siege.study, experiment)


def test_different_lists_for_different_hospitals_make_nothing_that_opens(siege: Siege) -> None:
    # Aspen helps: it announces two keys, each properly signed, and the coordinator holds both.
    study = siege.study
    experiment = Experiment(study, study.descriptor())
    experiment.agree()
    shown = announced_by(study.identities["Aspen"], "Aspen")(experiment)
    for name in experiment.members:
        request = experiment.exchange(shown if name == VICTIM else None)
        reply = expect(KeyShares, study.ask(name, request))
        experiment.key_shares[name] = from_bundle(reply.payload)

    siege.refuses(experiment.open(VICTIM), Code.KEYS_REFUSED)
    siege.refuses(experiment.request(VICTIM), Code.NOT_SET_UP)
    siege.refuses(experiment.exchange(), Code.CONFLICTING_REQUEST)  # a list is seen once
    for name in ("Cedar", "Durmast"):  # nor does the victim's key share open at the others
        assert refused(study.ask(name, experiment.open(name))) == Code.KEYS_REFUSED
    siege.running().leg()


@pytest.mark.parametrize(
    "changes",
    [{"rounds": 999}, {"training": TRAINING | {"learning-rate": 0.2}}],
    ids=["rounds", "learning rate"],
)
def test_different_descriptors_for_different_hospitals_make_nothing_that_opens(
    changes: dict[str, Any], siege: Siege
) -> None:
    # Each is within policy, but all hospitals must train by the same settings.
    study = siege.study
    experiment = Experiment(study, study.descriptor())
    shown = experiment.descriptor.model_copy(update=changes)
    for name in experiment.members:
        request = experiment.set_up()
        if name == VICTIM:
            request = SetUp(experiment=experiment.id, payload=shown.to_bytes())
        experiment.announced[name] = expect(Announcement, study.ask(name, request)).payload
    experiment.exchange_all()

    siege.refuses(experiment.open(VICTIM), Code.KEYS_REFUSED)
    siege.refuses(experiment.request(VICTIM), Code.NOT_SET_UP)
    for name in experiment.members:  # each lacks a key share that opens
        assert refused(study.ask(name, experiment.open(name))) == Code.KEYS_REFUSED
    siege.running().leg()


def test_keys_are_not_made_out_of_order(siege: Siege) -> None:
    experiment = Experiment(siege.study, siege.study.descriptor())
    nothing = to_bundle({})

    for request in (
        ExchangeKeyShares(experiment=experiment.id, payload=nothing),
        OpenKeyShares(experiment=experiment.id, payload=nothing),
        experiment.request(VICTIM),
        Close(experiment=experiment.id, payload=experiment.first_model.to_bytes()),
    ):
        siege.refuses(request, Code.UNKNOWN_EXPERIMENT)
    experiment.agree()
    siege.refuses(OpenKeyShares(experiment=experiment.id, payload=nothing), Code.NOT_SET_UP)

    experiment.make_keys()
    experiment.leg()
    experiment.close()
