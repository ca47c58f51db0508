"""An evil coordinator against a real agent: it has its key, and delivers what and when it likes.

Every attack comes after an honest request that was accepted and changes one thing in the next. It
is refused with its own code, leaves its line in the audit log, and spends nothing: the honest
request is accepted afterwards, as if there had been no attack.
"""

import hashlib
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_app.audit_view import read_audit
from client_app.folder import HospitalFolder
from client_app.policy import Policy
from client_app.refusal import Refused
from client_app.socket_client import AgentTurnedAway
from learning.data import Examples, Share
from protocol import envelope
from protocol.audit import AuditHead
from protocol.bundle import from_bundle, to_bundle
from protocol.envelope import Context
from protocol.keys import Identity, SealingKey
from protocol.membership import Announced, announce, seal_shares
from protocol.messages import (
    MAGIC,
    Announcement,
    Carries,
    Close,
    Closed,
    ExchangeShares,
    Hello,
    Introduction,
    OpenShares,
    Ready,
    Refusal,
    RefusalCode,
    Request,
    SetUp,
    Shares,
    Trained,
    TrainLeg,
    encode,
)
from protocol.model_bytes import ModelState
from protocol.roster import Member, Roster
from tests.attacks.study import (
    TRAINING,
    VICTIM,
    Agent,
    Experiment,
    Study,
    examples,
    expect,
    in_process,
    real_agent,
    refused,
    whole_study,
)

MAXIMUM = 1 << 20
STRANGER = Identity.generate()
Code = RefusalCode
Attack = Callable[[Experiment, TrainLeg], Request | bytes]


@dataclass
class Siege:
    """The study under attack, and its experiment as the last attack left it."""

    study: Study
    agent: Agent
    experiment: Experiment | None = None

    def running(self) -> Experiment:
        """Return an experiment in which the victim has already opened an envelope."""
        if self.experiment is None:
            self.experiment = self.study.experiment()
            self.experiment.leg()
            self.experiment.leg()
        return self.experiment

    def refuses(self, request: Request | bytes, code: RefusalCode) -> None:
        """Attack; see the code, nothing else in the reply, and one line in the audit log."""
        data = request if isinstance(request, bytes) else self.study.sign(request)
        lines, _ = read_audit(self.agent.folder)

        reply = self.study.ask(VICTIM, data)

        assert refused(reply) == code
        assert self.study.passed[-1].reply == encode(Refusal(code=code, audit=reply.audit))
        after, verdict = read_audit(self.agent.folder)
        assert verdict.broken is None
        assert after[:-1] == lines
        line = json.loads(after[-1])
        assert line["request"]["digest"] == hashlib.sha256(data).hexdigest()
        assert line["reply"] == {"kind": "refusal", "refusal": code}
        assert reply.audit == AuditHead.signed(
            self.study.identities[VICTIM], len(after), hashlib.sha256(after[-1]).digest()
        )


@pytest.fixture(scope="module")
def siege() -> Iterator[Siege]:
    study = whole_study()
    settings: dict[str, Any] = {"maximum_request_bytes": MAXIMUM, "models": '["mlp"]'}
    with real_agent(study, VICTIM, **settings) as agent:
        yield Siege(study, agent)


# --- one leg --------------------------------------------------------------------------------------


def changed(**changes: Any) -> Attack:
    return lambda _, honest: honest.model_copy(update=changes)


def signed_by(identity: Identity, purpose: str = "request") -> Attack:
    def attack(_: Experiment, honest: TrainLeg) -> bytes:
        body = encode(honest)
        return body + identity.sign(purpose, hashlib.sha256(body).digest())

    return attack


def altered(change: Callable[[bytes], bytes]) -> Attack:
    """Change the signed bytes on their way."""
    return lambda experiment, honest: change(experiment.study.sign(honest))


def resigned(change: Callable[[bytes], bytes]) -> Attack:
    """Change the header's text, and sign that."""

    def attack(experiment: Experiment, honest: TrainLeg) -> bytes:
        header = change(encode(honest.model_copy(update={"payload": b""}))[8:])
        body = MAGIC + len(header).to_bytes(4, "big") + header + honest.payload
        coordinator = experiment.study.coordinator
        return body + coordinator.sign("request", hashlib.sha256(body).digest())

    return attack


def payload(change: Callable[[bytes], bytes]) -> Attack:
    """Change the envelope, and sign that."""
    return lambda _, honest: honest.model_copy(update={"payload": change(honest.payload)})


def flipped(position: int) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        at = position % len(data)
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


def sealed(
    model: Callable[[ModelState], ModelState] = lambda model: model,
    *,
    key_of: str = VICTIM,
    member_key: bytes | None = None,
    **context: Any,
) -> Attack:
    """Seal a model for the victim, as a member that helps the coordinator could."""

    def attack(experiment: Experiment, honest: TrainLeg) -> TrainLeg:
        right = Context(experiment.id, experiment.secret("epoch-digest"), experiment.legs, VICTIM)
        data = envelope.seal(
            model(experiment.first_model).to_bytes(),
            context=replace(right, **context),
            recipient_key=experiment.key_of(key_of),
            member_key=member_key or experiment.secret("member-key"),
        )
        return honest.model_copy(update={"payload": data})

    return attack


def aggregate(model: Callable[[ModelState], ModelState]) -> Attack:
    return lambda experiment, honest: honest.model_copy(
        update={
            "carries": Carries.AGGREGATE,
            "sealed_in": None,
            "payload": model(experiment.first_model).to_bytes(),
        }
    )


def tensor(name: str, change: Callable[[Any], Any]) -> Callable[[ModelState], ModelState]:
    return lambda model: ModelState(model.parameters | {name: change(model.parameters[name])})


def with_value(value: float) -> Callable[[ModelState], ModelState]:
    return tensor("output.bias", lambda array: np.full_like(array, value))


def with_more(name: str) -> Callable[[ModelState], ModelState]:
    return lambda model: ModelState(model.parameters | {name: np.zeros(1, np.float32)})


MODELS: dict[str, tuple[RefusalCode, Callable[[ModelState], ModelState]]] = {
    "of another shape": (Code.MODEL_MISMATCH, tensor("output.weight", np.transpose)),
    "of another type": (Code.MODEL_MISMATCH, tensor("output.bias", np.float64)),
    "with NaN": (Code.NOT_FINITE, with_value(np.nan)),
    "with infinity": (Code.NOT_FINITE, with_value(-np.inf)),
    "with an extra tensor": (Code.MODEL_MISMATCH, with_more("output.more")),
    "without its tensors": (Code.MODEL_MISMATCH, lambda _: ModelState({})),
    "with a buffer": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState(model.parameters, {"n": np.array(1)}),
    ),
    "with an optimiser's state": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState(model.parameters, {}, {"momentum/x": np.zeros(1)}),
    ),
    "of a megabyte more": (
        Code.MODEL_MISMATCH,
        lambda model: ModelState(model.parameters | {"x": np.zeros(240_000, np.float32)}),
    ),
}
LEG: dict[str, tuple[RefusalCode, Attack]] = {
    # Who asks
    "without a signature": (Code.BAD_SIGNATURE, altered(lambda data: data[:-64])),
    "with a signature of zeros": (Code.BAD_SIGNATURE, altered(lambda d: d[:-64] + bytes(64))),
    "signed by a stranger": (Code.BAD_SIGNATURE, signed_by(STRANGER)),
    "signed by another member": (
        Code.BAD_SIGNATURE,
        lambda e, honest: signed_by(e.study.identities["Aspen"])(e, honest),
    ),
    "signed for another purpose": (
        Code.BAD_SIGNATURE,
        lambda e, honest: signed_by(e.study.coordinator, "roster")(e, honest),
    ),
    "with the last request's signature": (
        Code.BAD_SIGNATURE,
        lambda e, honest: encode(honest) + e.study.sign(e.asked[VICTIM])[-64:],
    ),
    # Bytes changed on the way
    "with a byte flipped in its magic": (Code.MALFORMED, altered(flipped(1))),
    "with a byte flipped in its length": (Code.MALFORMED, altered(flipped(7))),
    "with a byte flipped in a name": (
        Code.BAD_SIGNATURE,
        altered(lambda data: data.replace(b'"experiment":"e', b'"experiment":"f', 1)),
    ),
    "with a byte flipped in its envelope": (Code.BAD_SIGNATURE, altered(flipped(-700))),
    "with a byte flipped in its signature": (Code.BAD_SIGNATURE, altered(flipped(-1))),
    "cut off in its header": (Code.MALFORMED, altered(lambda data: data[:100])),
    "cut off in its envelope": (Code.BAD_SIGNATURE, altered(lambda data: data[:-100])),
    "with a byte more": (Code.BAD_SIGNATURE, altered(lambda data: data + b"\0")),
    "that is a single byte": (Code.MALFORMED, altered(lambda data: data[:1])),
    # Signed, but not a request
    "in another spelling": (Code.MALFORMED, resigned(lambda h: h.replace(b",", b", ", 1))),
    "with a field nobody knows": (Code.MALFORMED, resigned(lambda h: b'{"a":1,' + h[1:])),
    "with a field twice": (
        Code.MALFORMED,
        resigned(lambda h: h.replace(b'"local_rounds":1', b'"local_rounds":1,"local_rounds":1')),
    ),
    "of an experiment in a folder": (
        Code.MALFORMED,
        resigned(lambda h: h.replace(b'"experiment":"', b'"experiment":"../', 1)),
    ),
    # Another place in the experiment
    "of an experiment nobody agreed to": (Code.UNKNOWN_EXPERIMENT, changed(experiment="e0")),
    "of an older leg": (
        Code.OLD_LEG,
        lambda e, honest: honest.model_copy(update={"leg": e.legs - 1}),
    ),
    "of leg 0": (Code.MALFORMED, changed(leg=0)),
    "of the same leg with other bytes": (
        Code.CONFLICTING_REQUEST,
        lambda e, honest: honest.model_copy(update={"leg": e.legs}),
    ),
    "of no rounds": (Code.ROUNDS_REFUSED, changed(local_rounds=0)),
    "of more rounds than agreed": (Code.ROUNDS_REFUSED, changed(local_rounds=1001)),
    "of rounds after the end": (Code.ROUNDS_REFUSED, changed(first_round=1000)),
    "without a model": (
        Code.MALFORMED,
        changed(carries=Carries.NOTHING, payload=b"", sealed_in=None),
    ),
    # Another way for the answer
    "for a recipient nobody knows": (Code.UNKNOWN_RECIPIENT, changed(recipient="Elder")),
    "for the coordinator by name": (Code.UNKNOWN_RECIPIENT, changed(recipient="coordinator")),
    "for a member in other capitals": (Code.UNKNOWN_RECIPIENT, changed(recipient="aspen")),
    # Envelopes
    "with an envelope opened before": (
        Code.REPLAYED,
        lambda e, honest: honest.model_copy(
            update=e.asked[VICTIM].model_dump(include={"sealed_in"})
            | {"payload": e.asked[VICTIM].payload}
        ),
    ),
    "with an old envelope as a new one": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.asked[VICTIM].payload}),
    ),
    "with an envelope said to be of an older leg": (
        Code.REPLAYED,
        lambda e, honest: honest.model_copy(update={"sealed_in": e.legs - 1}),
    ),
    "with an envelope of no leg": (Code.MALFORMED, changed(sealed_in=None)),
    "with an envelope of leg 0": (Code.MALFORMED, changed(sealed_in=0)),
    "with an envelope of this leg": (
        Code.MALFORMED,
        lambda _, honest: honest.model_copy(update={"sealed_in": honest.leg}),
    ),
    "with an envelope for another hospital": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.envelopes["Cedar"]}),
    ),
    "with a share in place of an envelope": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.shares["Cedar"][VICTIM]}),
    ),
    "with an envelope sealed for another name": (Code.ENVELOPE_REFUSED, sealed(recipient="Cedar")),
    "with an envelope sealed for another key": (Code.ENVELOPE_REFUSED, sealed(key_of="Cedar")),
    "with an envelope of another experiment": (Code.ENVELOPE_REFUSED, sealed(experiment="e0")),
    "with an envelope of another leg": (Code.ENVELOPE_REFUSED, sealed(leg=999)),
    "with an envelope of another epoch": (Code.ENVELOPE_REFUSED, sealed(epoch=bytes(32))),
    "with a model sealed without the member key": (
        Code.ENVELOPE_REFUSED,
        sealed(member_key=bytes(32)),
    ),
    "with a readable model as an envelope": (
        Code.ENVELOPE_REFUSED,
        lambda e, honest: honest.model_copy(update={"payload": e.first_model.to_bytes()}),
    ),
    "with an envelope as an aggregate": (
        Code.MODEL_MISMATCH,
        changed(carries=Carries.AGGREGATE, sealed_in=None),
    ),
    "with no envelope": (Code.ENVELOPE_REFUSED, changed(payload=b"")),
    "with an envelope of zeros": (Code.ENVELOPE_REFUSED, payload(lambda e: bytes(len(e)))),
    "with a point of small order": (
        Code.ENVELOPE_REFUSED,
        payload(lambda e: e[:1088] + bytes(32) + e[1120:]),
    ),
    "with an envelope cut off": (Code.ENVELOPE_REFUSED, payload(lambda e: e[:-1])),
    "with an envelope lengthened": (Code.ENVELOPE_REFUSED, payload(lambda e: e + b"\0")),
    **{
        f"with an envelope flipped at byte {at}": (Code.ENVELOPE_REFUSED, payload(flipped(at)))
        for at in (0, 1087, 1088, 1119, 1120, -17, -1)
    },
    # Models, made up by the coordinator or by a member that helps it
    **{f"with an aggregate {what}": (code, aggregate(how)) for what, (code, how) in MODELS.items()},
    **{f"with a sealed model {what}": (c, sealed(how)) for what, (c, how) in MODELS.items()},
}


@pytest.mark.parametrize("attack", LEG)
def test_a_leg_is_refused(attack: str, siege: Siege) -> None:
    code, made = LEG[attack]
    experiment = siege.running()
    siege.experiment = None  # a failure must not spoil the next attack
    honest = experiment.request(VICTIM)

    siege.refuses(made(experiment, honest), code)

    experiment.leg(**{VICTIM: honest})
    siege.experiment = experiment


def test_what_a_leg_is_refused_for_is_the_one_thing_changed(siege: Siege) -> None:
    # The same makers, with nothing changed: what they make is accepted.
    for unchanged in (
        lambda e, honest: signed_by(e.study.coordinator)(e, honest),
        resigned(lambda header: header),
        payload(lambda data: data),
        # Any member can forge towards another: docs/threat-model.md.
        sealed(),
        aggregate(lambda model: model),
    ):
        experiment = siege.running()
        honest = experiment.request(VICTIM)
        siege.experiment = None
        reply = expect(Trained, siege.study.ask(VICTIM, unchanged(experiment, honest)))
        assert reply.leg == honest.leg


def test_every_byte_of_a_signed_request_matters(siege: Siege) -> None:
    experiment = siege.running()
    siege.experiment = None
    honest = experiment.request(VICTIM)
    data = siege.study.sign(honest)

    for at in range(0, len(data), 61):
        altered_byte = flipped(at)(data)
        code = refused(siege.study.ask(VICTIM, altered_byte))
        assert code in (Code.MALFORMED, Code.BAD_SIGNATURE), at
    for end in range(1, len(data), 149):
        code = refused(siege.study.ask(VICTIM, data[:end]))
        assert code in (Code.MALFORMED, Code.BAD_SIGNATURE), end

    experiment.leg(**{VICTIM: honest})
    siege.experiment = experiment


def test_refusals_do_not_depend_on_patients() -> None:
    def refusals(patients: Examples) -> list[tuple[str, int]]:
        study = whole_study()
        in_process(study, VICTIM, Share(VICTIM, patients, patients))
        experiment = study.experiment()
        experiment.leg()
        experiment.leg()
        told = []
        for _, made in LEG.values():
            reply = study.ask(VICTIM, made(experiment, experiment.request(VICTIM)))
            told.append((refused(reply), len(study.passed[-1].reply)))
        return told

    usual = examples(32, seed=1)
    others = Examples(-1000 * usual.features, np.zeros_like(usual.labels))
    assert refusals(usual) == refusals(others)


def test_the_same_bytes_again_get_the_same_answer_and_nothing_is_trained_twice(
    siege: Siege,
) -> None:
    experiment = siege.running()
    honest = siege.study.sign(experiment.request(VICTIM))
    siege.experiment = None
    first = siege.agent.answer(honest)

    assert siege.agent.answer(honest) == first
    lines, _ = read_audit(siege.agent.folder)
    assert json.loads(lines[-1])["reply"]["kind"] == "repeated"


def test_all_hand_overs_routed_to_one_hospital(siege: Siege) -> None:
    # The default policy allows twice a fair share and four standard deviations of bad luck.
    experiment = siege.study.experiment()
    model = experiment.first_model.to_bytes()

    def hand_over(leg: int, recipient: str) -> TrainLeg:
        return experiment.request(
            VICTIM, leg=leg, first_round=leg, recipient=recipient, payload=model
        )

    for leg in range(1, 50):
        reply = siege.study.ask(VICTIM, hand_over(leg, "Aspen"))
        if isinstance(reply, Refusal):
            break
        expect(Trained, reply)

    assert 20 < leg < 45
    siege.refuses(hand_over(leg, "Aspen"), Code.TOO_MANY_TO_ONE)
    expect(Trained, siege.study.ask(VICTIM, hand_over(leg, "Cedar")))


def test_random_routes_are_never_taken_for_an_attack() -> None:
    policy = Policy.parse({}, source="test")
    rng = np.random.default_rng(1)
    for members in (3, 4, 10, 50):
        routes = rng.integers(0, members - 1, 3000)
        for total in range(1, len(routes) + 1):
            policy.check_recipient(int((routes[:total] == routes[total - 1]).sum()), total, members)
    with pytest.raises(Refused):
        policy.check_recipient(60, 60, 10)


# --- set-up ---------------------------------------------------------------------------------------

Settings = dict[str, Any]


def another_roster(study: Study) -> bytes:
    """Return the digest of a roster with one hospital more: the coordinator's second identity."""
    members = [*study.roster.members, Member("Elder", STRANGER.public)]
    return Roster.make("attacked", 2, study.coordinator.public, members).digest


def training(settings: Settings) -> Callable[[Study], Settings]:
    return lambda _: {"training": TRAINING | settings}


DESCRIPTORS: dict[str, tuple[RefusalCode, Callable[[Study], Settings]]] = {
    "another roster": (Code.ANOTHER_ROSTER, lambda study: {"roster": another_roster(study)}),
    "no roster": (Code.ANOTHER_ROSTER, lambda _: {"roster": bytes(32)}),
    "models that travel readable": (Code.AGAINST_POLICY, lambda _: {"sealed": False}),
    "too many rounds": (Code.AGAINST_POLICY, lambda _: {"rounds": 100_001}),
    "examples of another shape": (Code.DESCRIPTOR_REFUSED, lambda _: {"shape": (5,)}),
    "one class": (Code.DESCRIPTOR_REFUSED, lambda _: {"classes": 1}),
    "a model not on the list": (
        Code.AGAINST_POLICY,
        training({"model": "linear", "model-options": "{}"}),
    ),
    "a model nobody installed": (Code.DESCRIPTOR_REFUSED, training({"model": "gpt"})),
    "a model by its path": (Code.DESCRIPTOR_REFUSED, training({"model": "../../evil.py"})),
    "batches of one patient": (Code.AGAINST_POLICY, training({"batch-size": 1})),
    "giant steps": (Code.AGAINST_POLICY, training({"learning-rate": 10.5})),
    "a setting nobody knows": (Code.DESCRIPTOR_REFUSED, training({"upload": True})),
    "a layer of a million": (
        Code.DESCRIPTOR_REFUSED,
        training({"model-options": '{"hidden": [1000000]}'}),
    ),
    "half a megabyte of spaces": (
        Code.MALFORMED,
        training({"model-options": "{}" + " " * 500_000}),
    ),
}


@pytest.mark.parametrize("attack", DESCRIPTORS)
def test_a_descriptor_is_refused(attack: str, siege: Siege) -> None:
    code, changes = DESCRIPTORS[attack]
    siege.running()
    honest = Experiment(siege.study, siege.study.descriptor())
    evil = honest.descriptor.model_copy(update=changes(siege.study))

    siege.refuses(SetUp(experiment=honest.id, payload=evil.to_bytes()), code)

    expect(Announcement, siege.study.ask(VICTIM, honest.set_up()))
    close(siege.study, honest)


def close(study: Study, experiment: Experiment) -> None:
    """End an experiment at the victim."""
    end = Close(experiment=experiment.id, payload=experiment.first_model.to_bytes())
    expect(Closed, study.ask(VICTIM, end))


def test_an_experiment_is_agreed_to_once(siege: Siege) -> None:
    experiment = siege.running()
    evil = experiment.descriptor.model_copy(update={"rounds": 999})

    siege.refuses(
        SetUp(experiment=experiment.id, payload=evil.to_bytes()), Code.CONFLICTING_REQUEST
    )
    siege.refuses(SetUp(experiment="e0", payload=experiment.descriptor.to_bytes()), Code.MALFORMED)
    siege.refuses(
        SetUp(experiment=experiment.id, payload=experiment.descriptor.to_bytes() + b" "),
        Code.MALFORMED,
    )


def test_what_was_closed_stays_closed_and_its_keys_are_gone(siege: Siege) -> None:
    experiment = siege.study.experiment()
    experiment.leg()
    secrets = [experiment.secret("member-key"), experiment.secret("epoch-digest")]
    assert all(is_somewhere(secret, siege.agent.folder.state) for secret in secrets)
    experiment.close()

    assert not any(is_somewhere(secret, siege.agent.folder.state) for secret in secrets)
    siege.refuses(experiment.set_up(), Code.UNKNOWN_EXPERIMENT)
    siege.refuses(experiment.exchange(), Code.UNKNOWN_EXPERIMENT)
    siege.refuses(experiment.request(VICTIM), Code.UNKNOWN_EXPERIMENT)


def is_somewhere(secret: bytes, folder: Path) -> bool:
    return any(secret in file.read_bytes() for file in folder.iterdir())


# --- keys -----------------------------------------------------------------------------------------


def announced_by(
    identity: Identity, name: str = "Cedar", key: SealingKey | None = None, **changes: Any
) -> Callable[[Experiment], dict[str, bytes]]:
    """Put a key into the list, signed by `identity` as the announcement of `name`."""

    def announcements(experiment: Experiment) -> dict[str, bytes]:
        place: Settings = {
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


LISTS: dict[str, Callable[[Experiment], dict[str, bytes]]] = {
    "the coordinator's own key": lambda e: announced_by(e.study.coordinator)(e),
    "a key signed by a non-member": announced_by(STRANGER),
    "a key signed by another member": lambda e: announced_by(e.study.identities["Aspen"])(e),
    "a key in the victim's own name": lambda e: announced_by(e.study.coordinator, VICTIM)(e),
    "a key for another experiment": lambda e: announced_by(
        e.study.identities["Cedar"], experiment="e0"
    )(e),
    "a key for another roster": lambda e: announced_by(
        e.study.identities["Cedar"], roster=replace(e.study.roster, epoch=2)
    )(e),
    "a key of small order": of_small_order,
    "a member too few": edited(lambda a: {n: d for n, d in a.items() if n != "Cedar"}),
    "a member too many": announced_by(STRANGER, "Elder"),
    "two members exchanged": edited(lambda a: a | {"Aspen": a["Cedar"], "Cedar": a["Aspen"]}),
    "one announcement twice": edited(lambda a: a | {"Aspen": a["Cedar"]}),
    "a flipped byte": edited(lambda a: a | {"Cedar": flipped(5)(a["Cedar"])}),
    "an announcement cut off": edited(lambda a: a | {"Cedar": a["Cedar"][:-1]}),
    "nobody": edited(lambda _: {"": b""}),
    "twenty thousand strangers": edited(lambda _: {f"{n:05}": b"" for n in range(20_000)}),
}


@pytest.mark.parametrize("attack", LISTS)
def test_announcements_are_refused(attack: str, siege: Siege) -> None:
    experiment = Experiment(siege.study, siege.study.descriptor())
    experiment.agree()

    siege.refuses(experiment.exchange(LISTS[attack](experiment)), Code.KEYS_REFUSED)
    siege.refuses(experiment.request(VICTIM), Code.NOT_SET_UP)

    expect(Shares, siege.study.ask(VICTIM, experiment.exchange()))
    close(siege.study, experiment)


def sealed_share(of: Experiment, identity: Identity, name: str, **changes: Any) -> bytes:
    """Seal a share for the victim, signed by `identity` in the name of `name`."""
    place = {
        "experiment": of.id,
        "epoch": of.secret("epoch-digest"),
        "announcements": [Announced.from_bytes(n, d) for n, d in of.announced.items()],
    }
    return seal_shares(bytes(32), identity, name=name, **(place | changes))[VICTIM]


SHARES: dict[str, Callable[[Experiment], dict[str, bytes]]] = {
    "the coordinator's own share": lambda e: {
        "Cedar": sealed_share(e, e.study.coordinator, "Cedar")
    },
    "another member's share": lambda e: {"Cedar": e.shares["Aspen"][VICTIM]},
    "a share for another member": lambda e: {"Cedar": e.shares["Cedar"]["Durmast"]},
    "a share of another experiment": lambda e: {
        "Cedar": sealed_share(e, e.study.identities["Cedar"], "Cedar", experiment="e0")
    },
    "a share of another epoch": lambda e: {
        "Cedar": sealed_share(e, e.study.identities["Cedar"], "Cedar", epoch=bytes(32))
    },
    "a flipped byte": lambda e: {"Cedar": flipped(-1)(e.shares["Cedar"][VICTIM])},
    "a share cut off": lambda e: {"Cedar": e.shares["Cedar"][VICTIM][:-1]},
    "a share of nothing": lambda _: {"Cedar": b""},
    "a share of the victim's own": lambda e: {VICTIM: e.shares["Cedar"][VICTIM]},
    "a stranger's share": lambda e: {"Elder": sealed_share(e, STRANGER, "Elder")},
}


@pytest.mark.parametrize("attack", SHARES)
def test_shares_are_refused(attack: str, siege: Siege) -> None:
    experiment = Experiment(siege.study, siege.study.descriptor())
    experiment.agree()
    experiment.exchange_all()
    honest = {name: sealed[VICTIM] for name, sealed in experiment.shares.items() if name != VICTIM}

    siege.refuses(experiment.open(VICTIM, honest | SHARES[attack](experiment)), Code.KEYS_REFUSED)
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
        reply = expect(Shares, study.ask(name, request))
        experiment.shares[name] = from_bundle(reply.payload)

    siege.refuses(experiment.open(VICTIM), Code.KEYS_REFUSED)
    siege.refuses(experiment.request(VICTIM), Code.NOT_SET_UP)
    siege.refuses(experiment.exchange(), Code.CONFLICTING_REQUEST)  # a list is seen once
    for name in ("Cedar", "Durmast"):  # nor does the victim's share open at the others
        assert refused(study.ask(name, experiment.open(name))) == Code.KEYS_REFUSED
    siege.running().leg()


def test_different_descriptors_for_different_hospitals_make_nothing_that_opens(
    siege: Siege,
) -> None:
    # Each within policy: but nobody should train on other terms than the rest.
    study = siege.study
    experiment = Experiment(study, study.descriptor())
    shown = experiment.descriptor.model_copy(update={"rounds": 999})
    for name in experiment.members:
        request = experiment.set_up()
        if name == VICTIM:
            request = SetUp(experiment=experiment.id, payload=shown.to_bytes())
        experiment.announced[name] = expect(Announcement, study.ask(name, request)).payload
    experiment.exchange_all()

    siege.refuses(experiment.open(VICTIM), Code.KEYS_REFUSED)
    siege.refuses(experiment.request(VICTIM), Code.NOT_SET_UP)
    assert refused(study.ask("Cedar", experiment.open("Cedar"))) == Code.KEYS_REFUSED
    siege.running().leg()


def test_keys_are_not_made_out_of_order(siege: Siege) -> None:
    experiment = Experiment(siege.study, siege.study.descriptor())
    nothing = to_bundle({})

    for request in (
        ExchangeShares(experiment=experiment.id, payload=nothing),
        OpenShares(experiment=experiment.id, payload=nothing),
        experiment.request(VICTIM),
        Close(experiment=experiment.id, payload=experiment.first_model.to_bytes()),
    ):
        siege.refuses(request, Code.UNKNOWN_EXPERIMENT)
    experiment.agree()
    siege.refuses(OpenShares(experiment=experiment.id, payload=nothing), Code.NOT_SET_UP)

    experiment.make_keys()
    experiment.leg()
    experiment.close()


# --- memory and disk ------------------------------------------------------------------------------


def test_a_body_of_two_gigabytes_is_not_read(siege: Siege) -> None:
    head = "POST /v1/request HTTP/1.1\r\nHost: agent\r\nContent-Type: application/octet-stream\r\n"
    before = memory_of(siege.agent)

    assert "413" in sent_raw(siege.agent, f"{head}Content-Length: {2 << 30}\r\n\r\n", bytes(100))
    endless = f"{head}Transfer-Encoding: chunked\r\n\r\n"
    piece = b"%x\r\n%s\r\n" % (1 << 16, bytes(1 << 16))
    assert "413" in sent_raw(siege.agent, endless, piece * 64)
    with pytest.raises(AgentTurnedAway):
        siege.study.ask(VICTIM, bytes(MAXIMUM + 1))

    assert memory_of(siege.agent) < before + 20 * MAXIMUM
    siege.running().leg()
    lines, verdict = read_audit(siege.agent.folder)
    refusals = [json.loads(line)["reply"].get("refusal") for line in lines]
    assert (refusals.count(RefusalCode.TOO_LARGE), verdict.broken) == (3, None)


def sent_raw(agent: Agent, head: str, body: bytes) -> str:
    """Send bytes to the socket until it hangs up, and return the first line it answered."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(agent.socket)

        def send() -> None:
            with suppress(OSError):  # it hangs up, as it should
                connection.sendall(head.encode() + body)

        sending = threading.Thread(target=send)
        sending.start()
        answer = connection.recv(100).decode()
        sending.join(timeout=30)
    return answer.partition("\r\n")[0]


def memory_of(agent: Agent) -> int:
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_junk_costs_a_short_line_whatever_its_length(siege: Siege) -> None:
    before, _ = read_audit(siege.agent.folder)
    for length in (1, 100, 10_000, 900_000):
        siege.refuses(os.urandom(length), Code.MALFORMED)
    for name in ("e" * 64, "e"):
        siege.refuses(siege.running().request(VICTIM, experiment=name), Code.UNKNOWN_EXPERIMENT)

    after, _ = read_audit(siege.agent.folder)
    assert max(map(len, after[len(before) :])) < 600
    expect(Introduction, siege.study.ask(VICTIM, Hello()))


# --- an agent rolled back -------------------------------------------------------------------------


def test_an_agent_rolled_back_stops(siege: Siege) -> None:
    experiment = siege.running()
    siege.experiment = None
    with rolled_back_twin(siege) as (twin, look_away):
        experiment.leg()  # the twin does not know of it
        honest = experiment.request(VICTIM)
        siege.study.hospitals[VICTIM] = twin
        # What comes first also writes lines: the trail must not catch up with what was seen.
        for _ in range(3):
            look_away(Hello())

        for _ in range(3):
            assert refused(look_away(honest)) == Code.ROLLED_BACK
        assert refused(look_away(Hello())) == Code.ROLLED_BACK
        lines, verdict = read_audit(twin.folder)
        assert verdict.broken is None
        assert json.loads(lines[-1])["reply"]["refusal"] == Code.ROLLED_BACK

        siege.study.hospitals[VICTIM] = siege.agent
        experiment.leg(**{VICTIM: honest})
    siege.experiment = experiment


@contextmanager
def rolled_back_twin(siege: Siege) -> Iterator[tuple[Agent, Callable[[Request], Any]]]:
    """Start an agent from a backup of the victim's folder, and a way to ask it unnoticed."""
    folder = siege.agent.folder.path
    copy = folder.parent / "b"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("agent.sock", "*.lock"))
    twin = Agent(HospitalFolder(copy))
    twin.start()
    heads = siege.study.heads

    def ask_unnoticed(request: Request) -> Any:
        before = heads[VICTIM]
        reply = siege.study.ask(VICTIM, request)
        heads[VICTIM] = before  # what an honest coordinator keeps: the highest it has seen
        return reply

    try:
        yield twin, ask_unnoticed
    finally:
        siege.study.hospitals[VICTIM] = siege.agent
        twin.stop()
