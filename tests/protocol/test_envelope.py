"""Envelopes: the written format is what the code does, and none opens anywhere but in its place."""

import hashlib
import hmac
import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from protocol.sealing import envelope
from protocol.sealing.envelope import OVERHEAD, Context, EnvelopeError
from protocol.sealing.keys import InvalidKey, SealingKey

VECTORS = json.loads((Path(__file__).parent / "vectors/envelope.json").read_text(encoding="utf-8"))
KEY, OTHER_KEY = SealingKey.generate(), SealingKey.generate()
MEMBER_KEY, GENERATION = bytes(range(32)), bytes(range(32, 64))
CONTEXT = Context("e1", GENERATION, 5, "north")
# A busy machine is no reason to fail.
UNHURRIED = settings(deadline=None)
SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def seal(
    payload: bytes = b"model", context: Context = CONTEXT, member: bytes = MEMBER_KEY
) -> bytes:
    return envelope.seal(payload, context=context, recipient_key=KEY.public, member_key=member)


def opened(
    sealed: bytes,
    context: Context = CONTEXT,
    key: SealingKey = KEY,
    member: bytes = MEMBER_KEY,
) -> bytes:
    return envelope.open(sealed, context=context, key=key, member_key=member)


# The format, written a second time, from docs/envelope.md only.


def written_info(
    experiment: str,
    generation: bytes,
    leg: int,
    recipient: str,
    member_key: bytes,
    version: bytes = b"FedDC envelope v1",
) -> bytes:
    context = version
    context += bytes([0, 0, 0, len(experiment.encode())]) + experiment.encode()
    context += bytes([0, 0, 0, 32]) + generation
    context += bytes(leg >> shift & 255 for shift in range(56, -8, -8))
    context += bytes([0, 0, 0, len(recipient.encode())]) + recipient.encode()
    return context + written_hmac(member_key, context)


def written_hmac(key: bytes, data: bytes) -> bytes:
    """RFC 2104, for keys of up to 64 bytes."""
    padded = key + bytes(64 - len(key))
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + data).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in padded) + inner).digest()


def written_open(sealed: bytes, sealing_key: bytes, info: bytes) -> bytes:
    """X-Wing's decapsulation, then RFC 9180's key schedule (base mode), without its library."""
    mlkem = MLKEM768PrivateKey.from_seed_bytes(sealing_key[:64])
    x25519 = X25519PrivateKey.from_private_bytes(sealing_key[64:])
    from_mlkem = mlkem.decapsulate(sealed[:1088])
    ephemeral = sealed[1088:1120]
    from_x25519 = x25519.exchange(X25519PublicKey.from_public_bytes(ephemeral))
    public = x25519.public_key().public_bytes_raw()
    shared = hashlib.sha3_256(from_mlkem + from_x25519 + ephemeral + public + b"\\.//^\\")
    suite = b"HPKE" + bytes.fromhex("647a00010002")

    def extract(salt: bytes, label: bytes, data: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + data, "sha256")

    def expand(secret: bytes, label: bytes, data: bytes, length: int) -> bytes:
        text = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + data + b"\x01"
        return hmac.digest(secret, text, "sha256")[:length]

    schedule = b"\x00" + extract(b"", b"psk_id_hash", b"") + extract(b"", b"info_hash", info)
    secret = extract(shared.digest(), b"secret", b"")
    key, nonce = expand(secret, b"key", schedule, 32), expand(secret, b"base_nonce", schedule, 12)
    return AESGCM(key).decrypt(nonce, sealed[1120:], None)


def library_keys(key: SealingKey) -> tuple[MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey]:
    data, public = key.to_bytes(), key.public
    return (
        MLKEM768X25519PrivateKey(
            MLKEM768PrivateKey.from_seed_bytes(data[:64]),
            X25519PrivateKey.from_private_bytes(data[64:]),
        ),
        MLKEM768X25519PublicKey(
            MLKEM768PublicKey.from_public_bytes(public[:1184]),
            X25519PublicKey.from_public_bytes(public[1184:]),
        ),
    )


def test_an_envelope_opens_with_bare_hpke_and_the_info_as_written() -> None:
    info = written_info("e1", GENERATION, 5, "north", MEMBER_KEY)
    assert SUITE.decrypt(seal(b"model"), library_keys(KEY)[0], info=info) == b"model"


def test_what_bare_hpke_seals_with_the_info_as_written_opens() -> None:
    info = written_info("e1", GENERATION, 5, "north", MEMBER_KEY)
    assert opened(SUITE.encrypt(b"model", library_keys(KEY)[1], info=info)) == b"model"


def test_an_envelope_opens_without_any_hpke_library() -> None:
    info = written_info("e1", GENERATION, 5, "north", MEMBER_KEY)
    assert written_open(seal(b"model"), KEY.to_bytes(), info) == b"model"


@pytest.mark.parametrize("vector", VECTORS["opens"], ids=lambda vector: vector["why"])
def test_vector_opens(vector: dict[str, Any]) -> None:
    context, key, member_key, sealed = _read(vector)
    payload, data = bytes.fromhex(vector["payload"]), bytes.fromhex(vector["sealing_key"])
    fields = (context.experiment, context.generation, context.leg, context.recipient)
    info = written_info(*fields, member_key)
    assert key.public == bytes.fromhex(vector["public_key"])
    assert context.to_bytes() == bytes.fromhex(vector["context"]) == info[:-32]
    assert opened(sealed, context, key, member_key) == payload
    assert written_open(sealed, data, info) == payload
    assert len(sealed) == len(payload) + 1136


def test_the_documents_example_is_the_first_vector() -> None:
    text = (Path(__file__).parents[2] / "docs/envelope.md").read_text(encoding="utf-8")
    block = text.split("### Example")[1].split("```")[1]
    # Each line: hexadecimal, at least three spaces, what it is.
    written = "".join(line.split("   ")[0].replace(" ", "") for line in block.strip().splitlines())
    assert written == VECTORS["opens"][0]["context"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["why"])
def test_vector_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(EnvelopeError, match="does not open in this context"):
        opened(*_read(vector)[3:], *_read(vector)[:3])


def _read(vector: dict[str, Any]) -> tuple[Context, SealingKey, bytes, bytes]:
    context = Context(
        vector["experiment"],
        bytes.fromhex(vector["generation"]),
        vector["leg"],
        vector["recipient"],
    )
    key = SealingKey.from_bytes(bytes.fromhex(vector["sealing_key"]))
    return context, key, bytes.fromhex(vector["member_key"]), bytes.fromhex(vector["envelope"])


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
contexts = st.builds(
    Context,
    experiment=texts,
    generation=st.binary(min_size=32, max_size=32),
    leg=st.integers(1, 2**64 - 1),
    recipient=texts,
)
member_keys = st.binary(min_size=32, max_size=32)


@given(st.binary(max_size=2000), contexts, member_keys)
@UNHURRIED
def test_whatever_is_sealed_opens_in_its_place(
    payload: bytes, context: Context, member_key: bytes
) -> None:
    assert opened(seal(payload, context, member_key), context, member=member_key) == payload


def test_a_model_comes_out_as_it_went_in() -> None:
    model = {"weight": np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)}
    again = load(opened(seal(save(model))))
    np.testing.assert_array_equal(again["weight"], model["weight"])


ELSEWHERE = {
    "experiment": replace(CONTEXT, experiment="e2"),
    "experiment, in other capitals": replace(CONTEXT, experiment="E1"),
    "generation": replace(CONTEXT, generation=bytes(32)),
    "earlier leg": replace(CONTEXT, leg=4),
    "later leg": replace(CONTEXT, leg=6),
    "recipient": replace(CONTEXT, recipient="south"),
    "experiment and recipient exchanged": replace(CONTEXT, experiment="north", recipient="e1"),
}


@pytest.mark.parametrize("context", ELSEWHERE.values(), ids=ELSEWHERE)
def test_an_envelope_does_not_open_in_another_place(context: Context) -> None:
    with pytest.raises(EnvelopeError, match="does not open in this context"):
        opened(seal(), context)
    with pytest.raises(EnvelopeError, match="does not open in this context"):
        opened(seal(context=context))


def test_an_envelope_does_not_open_with_another_hospitals_key() -> None:
    with pytest.raises(EnvelopeError):
        opened(seal(), key=OTHER_KEY)


def test_an_envelope_does_not_open_when_half_of_the_key_is_anothers() -> None:
    ours, other = KEY.to_bytes(), OTHER_KEY.to_bytes()
    for mixed in (ours[:64] + other[64:], other[:64] + ours[64:]):
        with pytest.raises(EnvelopeError):
            opened(seal(), key=SealingKey.from_bytes(mixed))


def test_an_envelope_does_not_open_with_another_member_key() -> None:
    for bit in range(256):
        changed = (int.from_bytes(MEMBER_KEY, "big") ^ 1 << bit).to_bytes(32, "big")
        with pytest.raises(EnvelopeError):
            opened(seal(), member=changed)


def test_the_coordinator_cannot_make_an_envelope_that_opens() -> None:
    """It knows the recipient's announced key and the whole context, everything but one key."""
    context = CONTEXT.to_bytes()
    guesses = [
        b"",
        context,
        context + bytes(32),
        context + hashlib.sha256(context).digest(),
        context + written_hmac(b"", context),
        context + written_hmac(bytes(32), context),
        context + written_hmac(GENERATION, context),
        context + written_hmac(KEY.public[:32], context),
    ]
    for info in guesses:
        forged = SUITE.encrypt(b"model", library_keys(KEY)[1], info=info)
        with pytest.raises(EnvelopeError, match="does not open in this context"):
            opened(forged)


def test_a_recipient_without_the_member_key_cannot_read_what_is_sealed_for_it() -> None:
    private, _ = library_keys(KEY)
    for member_key in (b"", bytes(32), GENERATION):
        with pytest.raises(InvalidTag):
            SUITE.decrypt(
                seal(), private, info=written_info("e1", GENERATION, 5, "north", member_key)
            )


@pytest.mark.parametrize(
    "version", [b"FedDC envelope v2", b"FedDC envelope v", b"FedDC key share v1"]
)
def test_an_envelope_of_another_version_does_not_open(version: bytes) -> None:
    info = written_info("e1", GENERATION, 5, "north", MEMBER_KEY, version=version)
    with pytest.raises(EnvelopeError):
        opened(SUITE.encrypt(b"model", library_keys(KEY)[1], info=info))


@pytest.mark.parametrize("aead", [AEAD.AES_128_GCM, AEAD.CHACHA20_POLY1305])
def test_an_envelope_of_another_cipher_does_not_open(aead: AEAD) -> None:
    info = written_info("e1", GENERATION, 5, "north", MEMBER_KEY)
    suite = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, aead)
    with pytest.raises(EnvelopeError):
        opened(suite.encrypt(b"model", library_keys(KEY)[1], info=info))


def test_a_share_and_a_model_never_stand_in_for_each_other() -> None:
    at_leg_0 = replace(CONTEXT, leg=0)
    share = seal(b"share", at_leg_0, b"")
    assert opened(share, at_leg_0, member=b"") == b"share"
    with pytest.raises(EnvelopeError, match="does not open"):
        opened(share)
    with pytest.raises(EnvelopeError, match="does not open"):
        opened(seal(), at_leg_0, member=b"")


@pytest.mark.parametrize(
    ("leg", "length"), [(0, 32), (0, 1), (1, 0), (1, 31), (1, 33), (1, 64), (2**64 - 1, 0)]
)
def test_nothing_is_sealed_or_opened_without_a_member_key_but_shares(leg: int, length: int) -> None:
    """HMAC pads keys with zeros and hashes long ones: only one length leaves no second spelling."""
    context = replace(CONTEXT, leg=leg)
    with pytest.raises(EnvelopeError, match="member key"):
        seal(context=context, member=bytes(length))
    with pytest.raises(EnvelopeError, match="member key"):
        opened(seal(), context, member=bytes(length))


@pytest.mark.parametrize(
    "change",
    [
        {"leg": -1},
        {"leg": 2**64},
        {"generation": b""},
        {"generation": bytes(31)},
        {"generation": bytes(33)},
    ],
    ids=str,
)
def test_there_is_no_context_that_could_not_be_written(change: dict[str, Any]) -> None:
    with pytest.raises(EnvelopeError, match="invalid generation digest"):
        replace(CONTEXT, **change)


def test_nothing_is_sealed_for_a_key_that_is_none() -> None:
    for key in (b"", KEY.public[:-1], KEY.public + b"\0", KEY.public[:-32] + bytes(32)):
        with pytest.raises(InvalidKey):
            envelope.seal(b"model", context=CONTEXT, recipient_key=key, member_key=MEMBER_KEY)


@pytest.mark.parametrize("length", [0, 1, 32, 1088, 1120, 1135])
def test_what_is_too_short_to_be_an_envelope_is_refused(length: int) -> None:
    with pytest.raises(EnvelopeError, match="too short"):
        opened(seal()[:length])


def test_every_byte_of_the_envelope_matters() -> None:
    sealed = seal(b"m")
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1 << at % 8
        with pytest.raises(EnvelopeError, match="does not open in this context"):
            opened(bytes(changed))


@given(st.integers(0, 3000))
@example(0)
@settings(max_examples=50, deadline=None)
def test_an_envelope_is_its_payload_and_a_fixed_overhead(size: int) -> None:
    assert OVERHEAD == 1088 + 32 + 16
    assert len(seal(bytes(size))) == size + OVERHEAD


def test_two_envelopes_of_the_same_model_have_nothing_in_common() -> None:
    """No field is constant, so none can name a sender; what repeats by chance is 1 byte in 256."""
    payload = bytes(4000)
    sealed = np.frombuffer(b"".join(seal(payload) for _ in range(40)), np.uint8).reshape(40, -1)
    assert not (sealed == sealed[0]).all(axis=0).any()
    # 40 · 39 / 2 pairs of 5136 bytes: 1/256 of them equal, give or take six standard deviations.
    equal = np.mean([(sealed[i] == sealed[j]).mean() for i in range(40) for j in range(i)])
    assert equal == pytest.approx(1 / 256, abs=6 * np.sqrt(1 / 256 / (780 * 5136)))


def test_no_argument_could_name_the_sender() -> None:
    """Envelopes of two senders come from the same function of the same arguments."""
    assert list(inspect.signature(envelope.seal).parameters) == [
        "payload",
        "context",
        "recipient_key",
        "member_key",
    ]
    assert set(Context.__dataclass_fields__) == {"experiment", "generation", "leg", "recipient"}


@given(contexts, contexts)
@example(Context("ab", GENERATION, 1, "c"), Context("a", GENERATION, 1, "bc"))
@example(Context("", GENERATION, 1, "e"), Context("e", GENERATION, 1, ""))
@example(Context("é", GENERATION, 1, "n"), Context("e\u0301", GENERATION, 1, "n"))
@UNHURRIED
def test_different_contexts_are_different_bytes(one: Context, other: Context) -> None:
    assert (one == other) == (one.to_bytes() == other.to_bytes())


@given(contexts, st.data())
@UNHURRIED
def test_no_field_can_flow_into_the_next(context: Context, data: st.DataObject) -> None:
    """Cut the same bytes at other places: fields that concatenate alike stay apart."""
    fields = context.experiment + context.recipient
    cut = data.draw(st.integers(0, len(fields)))
    other = replace(context, experiment=fields[:cut], recipient=fields[cut:])
    assume(other != context)
    assert other.to_bytes() != context.to_bytes()


@given(contexts)
@UNHURRIED
def test_a_context_can_be_read_back_from_its_bytes(context: Context) -> None:
    """What can be read back in one way only can't have been written for two contexts."""
    data = context.to_bytes()
    assert data[:17] == b"FedDC envelope v1"
    experiment, rest = _take(data[17:])
    generation, rest = _take(rest)
    leg, rest = rest[:8], rest[8:]
    recipient, rest = _take(rest)
    assert rest == b""
    assert context == Context(
        experiment.decode(), generation, int.from_bytes(leg, "big"), recipient.decode()
    )


def _take(data: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(data[:4], "big")
    return data[4:end], data[end:]
