"""Makes the test vectors in vectors/: keys from fixed seeds, what is sealed and signed with them.

    python -m tests.protocol.make_vectors [NAME …]

Sealing is randomised, so every run writes other envelopes; all that is deterministic comes out the
same. The vectors in the repository were made once and have to be read by every later version.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from protocol.model_bytes import ModelState
from protocol.model_size import layout_of
from protocol.sealing import envelope
from protocol.sealing.envelope import Context
from protocol.sealing.keys import Identity, SealingKey
from protocol.sealing.membership import (
    announce,
    confirmation,
    derive_member_key,
    generation_digest,
    seal_key_shares,
)
from protocol.secure_sum import member as sums
from protocol.secure_sum.secure_leg import SecureLeg, threshold
from protocol.secure_sum.seeds import derive_pair_key, leg_pair_seed, tag_seed
from protocol.secure_sum.unmasking import unmask
from protocol.secure_sum.vector import VectorForm
from protocol.study.roster import Member, Roster

VECTORS = Path(__file__).parent / "vectors"
NAMES = ("Klinik Ost", "St. Mary-North", "hospital_3")
EXPERIMENT = "tiny-study-1"


def main() -> None:
    for name, make in (
        ("envelope", envelopes),
        ("roster", rosters),
        ("membership", membership),
        ("secure-sum", secure_sum),
    ):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        text = json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
        (VECTORS / f"{name}.json").write_text(text, encoding="utf-8")


def envelopes() -> dict[str, Any]:
    """Envelopes that open, and how each would have to be asked for in vain."""
    generation, member_key = seed("generation"), seed("member key")
    key, other = sealing_key("recipient"), sealing_key("another recipient")
    model = save({"weight": np.arange(6, dtype=np.float32).reshape(2, 3)})
    cases = {
        "a short text": (Context("e1", generation, 1, "north"), b"a model", member_key),
        "nothing in it": (Context("e1", generation, 2, "north"), b"", member_key),
        "safetensors, last leg, UTF-8 experiment": (
            Context("Küste – α", generation, 2**53 - 1, "St. Mary-North"),
            model,
            member_key,
        ),
        "a key share: leg 0, no member key": (
            Context("e1", generation, 0, "north"),
            seed("key share"),
            b"",
        ),
    }
    opens = [
        _envelope(
            why,
            context,
            key,
            member,
            envelope.seal(payload, context=context, recipient_key=key.public, member_key=member),
        )
        | {
            "context": context.to_bytes().hex(),
            "public_key": key.public.hex(),
            "payload": payload.hex(),
        }
        for why, (context, payload, member) in cases.items()
    ]
    sealed = bytes.fromhex(opens[0]["envelope"])
    right = Context("e1", generation, 1, "north")
    flipped = {
        "first bit of the ML-KEM ciphertext": 0,
        "first bit of the X25519 key": 1088,
        "last bit of the X25519 key": 1119,
        "first bit of the payload": 1120,
        "last bit of the tag": len(sealed) - 1,
    }
    refused = [
        _envelope(
            "another experiment", Context("e2", generation, 1, "north"), key, member_key, sealed
        ),
        _envelope(
            "another generation", Context("e1", seed("2"), 1, "north"), key, member_key, sealed
        ),
        _envelope("another leg", Context("e1", generation, 2, "north"), key, member_key, sealed),
        _envelope(
            "another recipient", Context("e1", generation, 1, "south"), key, member_key, sealed
        ),
        _envelope("another sealing key", right, other, member_key, sealed),
        _envelope("another member key", right, key, seed("guess"), sealed),
        _envelope("the last byte is missing", right, key, member_key, sealed[:-1]),
        _envelope("one byte too many", right, key, member_key, sealed + b"\0"),
        *(
            _envelope(f"{why} flipped", right, key, member_key, flip(sealed, at))
            for why, at in flipped.items()
        ),
    ]
    return {"opens": opens, "refused": refused}


def rosters() -> dict[str, Any]:
    """Signed rosters that are read, and some that are not."""
    coordinator = identity("coordinator")
    roster = tiny_roster()
    pair = Roster.make("Two", 2**31 - 1, coordinator.public, list(roster.members[:2]))
    form = json.loads(roster.content)
    members = form["members"]
    stranger = identity("stranger")
    contents = {
        "white space": json.dumps(form, sort_keys=True).encode(),
        "fields not sorted": json.dumps(
            dict(reversed(form.items())), separators=(",", ":")
        ).encode(),
        "members not sorted": _dump(form | {"members": members[::-1]}),
        "a member twice": _dump(form | {"members": [members[0], *members]}),
        "only one member": _dump(form | {"members": members[:1]}),
        "a field too many": _dump(form | {"note": ""}),
        "another version": _dump(form | {"version": 2}),
        "generation 0": _dump(form | {"generation": 0}),
        "upper-case identity": _dump(form | {"coordinator": form["coordinator"].upper()}),
        "a member is the coordinator": _dump(
            form | {"members": [members[0] | {"identity": form["coordinator"]}, *members[1:]]}
        ),
        "names that differ only in capitals": _dump(
            form | {"members": [members[0], members[1] | {"name": "klinik ost"}]}
        ),
        "an identity of small order": _dump(
            form | {"members": [members[0] | {"identity": "01" + 31 * "00"}, *members[1:]]}
        ),
    }
    refused = {
        why: content + coordinator.sign("roster", content) for why, content in contents.items()
    }
    refused |= {
        "signed by somebody else": roster.content + stranger.sign("roster", roster.content),
        "signed for another purpose": roster.content
        + coordinator.sign("key share", roster.content),
        "one byte too many": roster.signed(coordinator) + b"\n",
        "the last byte is missing": roster.signed(coordinator)[:-1],
    }
    return {
        "coordinator_seed": coordinator.to_bytes().hex(),
        "read": [
            {
                "content": one.content.decode(),
                "signed": one.signed(coordinator).hex(),
                "digest": one.digest.hex(),
                "fingerprint": one.fingerprint,
                "member_fingerprints": {m.name: m.fingerprint for m in one.members},
            }
            for one in (roster, pair)
        ],
        "refused": [{"why": why, "signed": signed.hex()} for why, signed in refused.items()],
    }


def membership() -> dict[str, Any]:
    """One experiment's keys, from the announcements to the member key."""
    roster = tiny_roster()
    identities = {name: identity(name) for name in NAMES}
    keys = {name: sealing_key(name) for name in NAMES}
    shares = {name: seed(f"key share of {name}") for name in NAMES}
    pair_secrets = {
        name: {other: seed(f"pair seed of {name} for {other}") + b"\3" for other in NAMES}
        for name in NAMES
    }
    announcements = [
        announce(identities[name], keys[name], name=name, experiment=EXPERIMENT, roster=roster)
        for name in NAMES
    ]
    generation = generation_digest(announcements, experiment=EXPERIMENT, roster=roster)
    sealed = {
        name: seal_key_shares(
            shares[name],
            pair_secrets[name],
            identities[name],
            name=name,
            experiment=EXPERIMENT,
            generation=generation,
            announcements=announcements,
        )
        for name in NAMES
    }
    member_key = derive_member_key(shares, roster=roster, generation=generation)
    return {
        "experiment": EXPERIMENT,
        "roster": roster.content.decode(),
        "members": [
            {
                "name": announced.name,
                "identity_seed": identities[announced.name].to_bytes().hex(),
                "sealing_key": keys[announced.name].to_bytes().hex(),
                "key_share": shares[announced.name].hex(),
                "pair_secrets": {
                    to: secret.hex()
                    for to, secret in pair_secrets[announced.name].items()
                    if to != announced.name
                },
                "announcement": announced.to_bytes().hex(),
                "sealed_key_shares": {
                    to: data.hex() for to, data in sealed[announced.name].items()
                },
            }
            for announced in announcements
        ],
        "generation_digest": generation.hex(),
        "member_key": member_key.hex(),
        "confirmation": confirmation(member_key).hex(),
    }


def secure_sum() -> dict[str, Any]:
    """A secure sum of three members, from the pair seeds to the mean."""
    generation, member_key, aggregate = seed("generation"), seed("member key"), seed("aggregate")
    leg = SecureLeg(EXPERIMENT, generation, 5, NAMES, threshold(len(NAMES)))
    identities = {name: identity(name) for name in NAMES}
    keys = {name: sealing_key(name) for name in NAMES}
    models = {name: _tiny_model(number) for number, name in enumerate(NAMES)}
    layouts = (layout_of(models[NAMES[0]].parameters), layout_of(models[NAMES[0]].buffers))
    form = VectorForm(*layouts, members=len(NAMES))
    total, masked, members = form.zeros(), {}, []
    described: list[dict[str, Any]] = []
    for name in NAMES:
        pair_seeds = {other: _pair_seeds(name, other) for other in NAMES if other != name}
        pair_keys = {o: derive_pair_key(given, generation) for o, given in pair_seeds.items()}
        one = sums.Member(
            name,
            identities[name],
            keys[name],
            member_key,
            pair_keys,
            {n: key.public for n, key in keys.items()},
            {n: i.public for n, i in identities.items()},
        )
        vector = form.encode(models[name], figures={"loss": 0.5})
        plain = vector.to_bytes()
        self_seed = seed(f"self seed of {name}")
        made = one.mask(leg, vector, aggregate=aggregate, draw_seed=lambda _, s=self_seed: s)
        masked[name] = made
        total.add(made.vector)
        members.append(one)
        described.append(
            {
                "name": name,
                "identity_seed": identities[name].to_bytes().hex(),
                "sealing_key": keys[name].to_bytes().hex(),
                "pair_seeds": {o: given[name].hex() for o, given in pair_seeds.items()},
                "pair_keys": {o: key.hex() for o, key in pair_keys.items()},
                "leg_pair_seeds": {o: leg_pair_seed(k, leg).hex() for o, k in pair_keys.items()},
                "self_seed": self_seed.hex(),
                "vector_without_tag": plain.hex(),
                "masked_vector": made.vector.to_bytes().hex(),
                "statement": made.statement.to_bytes().hex(),
                "sealed_shares": {to: data.hex() for to, data in made.shares.items()},
            }
        )
    statements = {name: made.statement for name, made in masked.items()}
    signatures = {
        one.name: one.sign_survivors(leg, statements, own=statements[one.name], aggregate=aggregate)
        for one in members
    }
    revealed = {
        one.name: one.reveal(
            leg, statements, signatures, {n: made.shares[one.name] for n, made in masked.items()}
        )
        for one in members
    }
    unmask(total, leg, NAMES, revealed)
    mean = form.decode(total, len(NAMES))
    return {
        "experiment": EXPERIMENT,
        "generation": generation.hex(),
        "leg": leg.leg,
        "threshold": leg.threshold,
        "leg_digest": leg.digest.hex(),
        "member_key": member_key.hex(),
        "tag_seed": tag_seed(member_key, leg).hex(),
        "aggregate": aggregate.hex(),
        "members": described,
        "survivor_signatures": {name: data.hex() for name, data in signatures.items()},
        "revealed": {name: data.hex() for name, data in revealed.items()},
        "sum": total.to_bytes().hex(),
        "mean": {
            name: array.tolist()
            for name, array in {**mean.model.parameters, **mean.model.buffers}.items()
        },
    }


def _tiny_model(number: int) -> ModelState:
    weights = np.array([[0.5, -1.25], [number, 1 / 3]], dtype=np.float32)
    counter = np.asarray(100 + 3 * number, dtype=np.int64)
    return ModelState({"layer.weight": weights}, {"norm.batches": counter})


def _pair_seeds(one: str, other: str) -> dict[str, bytes]:
    return {
        sender: seed(f"pair seed of {sender} for {recipient}")
        for sender, recipient in ((one, other), (other, one))
    }


def tiny_roster() -> Roster:
    members = [Member(name, identity(name).public) for name in NAMES]
    return Roster.make("Tiny study", 1, identity("coordinator").public, members)


def seed(label: str) -> bytes:
    return hashlib.sha256(f"FedDC test vector: {label}".encode()).digest()


def identity(label: str) -> Identity:
    return Identity.from_bytes(seed(f"identity of {label}"))


def sealing_key(label: str) -> SealingKey:
    return SealingKey.from_bytes(b"".join(seed(f"sealing key of {label}, {i}") for i in range(3)))


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _envelope(
    why: str, context: Context, key: SealingKey, member_key: bytes, sealed: bytes
) -> dict[str, Any]:
    return {
        "why": why,
        "experiment": context.experiment,
        "generation": context.generation.hex(),
        "leg": context.leg,
        "recipient": context.recipient,
        "sealing_key": key.to_bytes().hex(),
        "member_key": member_key.hex(),
        "envelope": sealed.hex(),
    }


def _dump(form: dict[str, Any]) -> bytes:
    return json.dumps(form, sort_keys=True, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
