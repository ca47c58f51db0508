"""Rosters: one content has one form, nobody is in it twice, only its coordinator can sign it."""

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.sealing.keys import Identity
from protocol.study.roster import (
    MAX_BYTES,
    MAX_MEMBERS,
    Member,
    Roster,
    RosterError,
    fingerprint,
)
from tests.little_work import with_little_work
from tests.protocol.mutations import refuses

VECTORS = json.loads((Path(__file__).parent / "vectors/roster.json").read_text(encoding="utf-8"))
COORDINATOR, STRANGER = Identity.from_bytes(b"c" * 32), Identity.from_bytes(b"s" * 32)
IDENTITIES = [Identity.from_bytes(bytes([number]) * 32).public for number in range(1, 4)]
MEMBERS = [
    Member(name, key) for name, key in zip(("East", "North", "West"), IDENTITIES, strict=True)
]
ROSTER = Roster.make("Study 1", 1, COORDINATOR.public, MEMBERS)
FORM: dict[str, Any] = json.loads(ROSTER.content)


def signed(content: bytes, purpose: str = "roster", by: Identity = COORDINATOR) -> bytes:
    return content + by.sign(purpose, content)


def content(**changes: Any) -> bytes:
    return json.dumps(FORM | changes, sort_keys=True, separators=(",", ":")).encode()


def named(*names: str) -> bytes:
    """A roster of members with these names, in this order, each with a key of its own."""
    keys = (hashlib.sha256(b"%d" % number).hexdigest() for number in range(len(names)))
    return content(
        members=[{"identity": key, "name": n} for n, key in zip(names, keys, strict=False)]
    )


def refuse(data: bytes, match: str) -> None:
    with pytest.raises(RosterError, match=match):
        Roster.from_content(data)
    with pytest.raises(RosterError, match=match):
        Roster.from_signed(signed(data))


def test_the_content_is_what_is_written() -> None:
    east, north, west = (key.hex() for key in IDENTITIES)
    assert ROSTER.content.decode() == (
        f'{{"coordinator":"{COORDINATOR.public.hex()}","generation":1,"members":['
        f'{{"identity":"{east}","name":"East"}},'
        f'{{"identity":"{north}","name":"North"}},'
        f'{{"identity":"{west}","name":"West"}}],"study":"Study 1","version":1}}'
    )


def test_the_signature_is_the_last_64_bytes_and_verifies_with_the_raw_key() -> None:
    data = ROSTER.signed(COORDINATOR)
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(FORM["coordinator"]))
    key.verify(data[-64:], b"FedDC roster v1\x00" + data[:-64])
    assert data[:-64] == ROSTER.content


def test_a_signed_roster_is_read_back() -> None:
    assert Roster.from_signed(ROSTER.signed(COORDINATOR)) == ROSTER


def test_digest_and_fingerprint_are_sha_256_of_the_content() -> None:
    digest = hashlib.sha256(ROSTER.content).digest()
    assert ROSTER.digest == digest
    assert ROSTER.fingerprint == written_fingerprint(ROSTER.content)


def written_fingerprint(data: bytes) -> str:
    """RFC 4648's Base32 by hand: 160 bits, five at a time, a space after every fourth letter."""
    number = int.from_bytes(hashlib.sha256(data).digest()[:20], "big")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    letters = [alphabet[number >> shift & 31] for shift in range(155, -1, -5)]
    return " ".join("".join(letters[at : at + 4]) for at in range(0, 32, 4))


@given(st.binary(max_size=100))
@settings(deadline=None)
def test_a_fingerprint_is_160_bits_in_eight_groups_of_four(data: bytes) -> None:
    text = fingerprint(data)
    assert text == written_fingerprint(data)
    assert [len(group) for group in text.split(" ")] == [4] * 8
    assert base64.b32decode(text.replace(" ", "")) == hashlib.sha256(data).digest()[:20]


def test_a_members_fingerprint_is_that_of_its_identity() -> None:
    assert MEMBERS[0].fingerprint == written_fingerprint(IDENTITIES[0])


@pytest.mark.parametrize("vector", VECTORS["read"], ids=["three members", "two members"])
def test_vector_is_read(vector: dict[str, Any]) -> None:
    data, text = bytes.fromhex(vector["signed"]), vector["content"].encode()
    roster = Roster.from_signed(data)
    coordinator = Identity.from_bytes(bytes.fromhex(VECTORS["coordinator_seed"]))
    assert data[:-64] == text == roster.content
    assert roster.signed(coordinator) == data
    assert roster.digest.hex() == vector["digest"] == hashlib.sha256(text).hexdigest()
    assert roster.fingerprint == vector["fingerprint"] == written_fingerprint(text)
    assert {m.name: m.fingerprint for m in roster.members} == vector["member_fingerprints"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["why"])
def test_vector_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(RosterError):
        Roster.from_signed(bytes.fromhex(vector["signed"]))


def test_members_are_found_by_name() -> None:
    assert ROSTER.names == ("East", "North", "West")
    assert ROSTER.identity_of("North") == IDENTITIES[1]
    assert ROSTER.identity_of("north") is None
    assert ROSTER.identity_of("") is None


@given(st.permutations(MEMBERS))
@settings(deadline=None)
def test_the_order_in_which_members_are_given_does_not_matter(members: list[Member]) -> None:
    assert Roster.make("Study 1", 1, COORDINATOR.public, members).content == ROSTER.content


def test_any_change_changes_the_fingerprint() -> None:
    others = [
        replace(ROSTER, study="Study 2"),
        replace(ROSTER, generation=2),
        replace(ROSTER, coordinator=STRANGER.public),
        replace(ROSTER, members=ROSTER.members[:2]),
        replace(ROSTER, members=(replace(MEMBERS[0], name="Eest"), *MEMBERS[1:])),
        replace(ROSTER, members=(replace(MEMBERS[0], identity=STRANGER.public), *MEMBERS[1:])),
    ]
    assert len({roster.fingerprint for roster in [ROSTER, *others]}) == 7
    assert len({roster.digest for roster in [ROSTER, *others]}) == 7


# Who signed


def test_only_the_coordinator_it_names_can_sign() -> None:
    with pytest.raises(RosterError, match="only the coordinator"):
        ROSTER.signed(STRANGER)
    with pytest.raises(RosterError, match="not signed by the coordinator"):
        Roster.from_signed(signed(ROSTER.content, by=STRANGER))


def test_a_member_cannot_sign_in_the_coordinators_place() -> None:
    member = Identity.from_bytes(bytes([1]) * 32)
    with pytest.raises(RosterError, match="not signed"):
        Roster.from_signed(signed(ROSTER.content, by=member))


@pytest.mark.parametrize("purpose", ["announcement", "key share", "Roster", "roster v1", ""])
def test_a_signature_for_another_purpose_does_not_count(purpose: str) -> None:
    with pytest.raises(RosterError, match="not signed"):
        Roster.from_signed(signed(ROSTER.content, purpose))


def test_the_signature_of_another_roster_does_not_count() -> None:
    later = Roster.make("Study 1", 2, COORDINATOR.public, MEMBERS).signed(COORDINATOR)
    with pytest.raises(RosterError, match="not signed"):
        Roster.from_signed(ROSTER.content + later[-64:])


def test_a_coordinator_of_small_order_would_be_anybody() -> None:
    """For this key (neutral point, zero) is a signature of everything."""
    neutral = (1).to_bytes(32, "little")
    forged = content(coordinator=neutral.hex()) + neutral + bytes(32)
    with pytest.raises(RosterError, match="small-order"):
        Roster.from_signed(forged)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 100, -65, -64, -1])
def test_a_truncated_roster_is_refused(length: int) -> None:
    with pytest.raises(RosterError):
        Roster.from_signed(ROSTER.signed(COORDINATOR)[:length])


@pytest.mark.parametrize("extra", [b"\0", b"\n", b" ", b"{}", bytes(64)])
def test_bytes_before_between_or_after_are_refused(extra: bytes) -> None:
    data = ROSTER.signed(COORDINATOR)
    for changed in (extra + data, data[:-64] + extra + data[-64:], data + extra):
        with pytest.raises(RosterError):
            Roster.from_signed(changed)


# One form only


def test_another_spelling_of_the_same_roster_is_refused() -> None:
    text = ROSTER.content
    spellings = [
        json.dumps(FORM, sort_keys=True).encode(),
        json.dumps(FORM, sort_keys=True, indent=1).encode(),
        json.dumps(dict(reversed(FORM.items())), separators=(",", ":")).encode(),
        b" " + text,
        text + b"\n",
        text.replace(b'"East"', b'"\\u0045ast"'),
        text.replace(b'"study"', b'"stud\\u0079"'),
        text.replace(b'"Study 1"', b'"Study\\u00201"'),
        text.replace(b'"version":1', b'"version":1,"version":1'),
        text.replace(b'"generation":1', b'"generation":2,"generation":1'),
    ]
    for spelling in spellings:
        refuse(spelling, "not in canonical form")


@pytest.mark.parametrize(
    "number", ["1.0", "1e0", "10e-1", "01", "+1", "true", '"1"', "null", "NaN"]
)
def test_a_number_has_one_spelling(number: str) -> None:
    refuse(
        ROSTER.content.replace(b'"generation":1', f'"generation":{number}'.encode()),
        "generation|roster",
    )


def test_a_byte_order_mark_or_another_encoding_is_refused() -> None:
    refuse(b"\xef\xbb\xbf" + ROSTER.content, "roster")
    refuse(ROSTER.content.decode().encode("utf-16"), "roster")


@pytest.mark.parametrize("field", sorted(FORM))
def test_every_field_is_needed_and_of_its_type(field: str) -> None:
    without = {key: value for key, value in FORM.items() if key != field}
    refuse(json.dumps(without, sort_keys=True, separators=(",", ":")).encode(), field)
    for value in (None, [], {}, "", -1, 1.5, [[]], False):
        refuse(content(**{field: value}), field)


def test_unknown_fields_are_refused() -> None:
    refuse(content(note="hello"), "not in canonical form")
    members = [FORM["members"][0] | {"role": "admin"}, *FORM["members"][1:]]
    refuse(content(members=members), "not in canonical form")


def test_what_a_refusal_says_cannot_be_dictated() -> None:
    """The message goes to a log: no text of the sender's, no line breaks."""
    for data in (
        content(**{"x\nERROR all hospitals agreed": 1}),
        content(study="x\nERROR all hospitals agreed"),
        b'{"x\nERROR all hospitals agreed":1}',
    ):
        with pytest.raises(RosterError) as refused:
            Roster.from_content(data)
        assert "all hospitals agreed" not in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("version", [0, 2, 10, "1"])
def test_another_version_is_refused(version: Any) -> None:
    refuse(content(version=version), "version")


@pytest.mark.parametrize("generation", [1, 2, 2**31 - 1])
def test_generations_count_from_one(generation: int) -> None:
    assert Roster.from_signed(signed(content(generation=generation))).generation == generation


@pytest.mark.parametrize("generation", [0, -1, 2**31, 2**63, 2**64, 10**400])
def test_an_generation_out_of_bounds_is_refused(generation: int) -> None:
    refuse(content(generation=generation), "generation")
    with pytest.raises(RosterError, match="generation"):
        Roster.make("Study 1", generation, COORDINATOR.public, MEMBERS)


# Who is in it


def test_members_out_of_order_are_refused() -> None:
    refuse(content(members=FORM["members"][::-1]), "sorted")
    refuse(named("a", "B"), "sorted")  # by code point: capitals come first


def test_the_same_name_or_identity_twice_is_refused() -> None:
    first, second, third = FORM["members"]
    refuse(content(members=[first, first, second]), "different names")
    refuse(content(members=[first, first | {"identity": third["identity"]}]), "different names")
    refuse(content(members=[first, second | {"identity": first["identity"]}]), "share an identity")
    with pytest.raises(RosterError, match="different names"):
        Roster.make("Study 1", 1, COORDINATOR.public, [*MEMBERS, MEMBERS[0]])


def test_the_coordinator_is_no_member() -> None:
    """A member has the member key, and the coordinator must never have it."""
    members = [*FORM["members"], {"identity": FORM["coordinator"], "name": "Z"}]
    refuse(content(members=members), "share an identity")


@pytest.mark.parametrize(
    "names",
    [
        ("East", "east"),
        ("A  b", "A b"),
        ("Mercy", "Mercy "),
        ("EAST ", "East"),
        ("St-Mary", "St_Mary"),
        ("St Mary.", "St-Mary"),
        ("St. Mary", "stmary"),
        ("Weiss", "Wei\u00df"),
        ("K\u00f6ln", "k\u00f6ln"),
        ("I.", "\u0131"),
        ("COPA", "\u0421\u041e\u0420\u0410"),  # the second in Cyrillic
    ],
)
def test_names_that_are_read_out_alike_are_refused(names: tuple[str, str]) -> None:
    """Before, `St-Mary`, `St_Mary` and `St Mary.` could be three members."""
    refuse(named(*sorted(names)), "capitals, spaces or punctuation")


@pytest.mark.parametrize(
    "name", ["coordinator", "Co-Ordinator", "SERVER", "server_", "None", "You."]
)
def test_words_for_others_are_no_names_of_members(name: str) -> None:
    """Before, a member could be called `coordinator`: audit lines then named it as recipient."""
    refuse(named(*sorted((name, "zz"))), r"name: is a reserved word")
    assert Roster.from_content(content(study=name)).study == name


@pytest.mark.parametrize("count", [0, 1])
def test_a_roster_needs_two_members(count: int) -> None:
    refuse(content(members=FORM["members"][:count]), "members")


ODD_NAMES = {
    "empty": "",
    "one space": " ",
    "leading space": " East",
    "leading dot": ".East",
    "too long": "x" * 65,
    "line break at the end": "East\n",
    "carriage return": "East\r",
    "NUL": "East\0",
    "escape sequence": "East\x1b[2K",
    "tab": "East\tWest",
    "NFD": "Zu\u0308rich",
    "right-to-left override": "East\u202etsaE",
    "zero-width space": "Ea\u200bst",
    "no-break space": "East\u00a01",
    "Cyrillic a": "E\u0430st",
    "full-width": "\uff25ast",
    "Arabic digit": "East \u0661",
    "tag letters": "East\U000e0041",
    "Hangul filler": "\u115f\u1160",
    "Hangul half-width filler": "\uffa0",
    "ligature": "\ufb01x",
    "combining mark": "q\u0308",
    "private use": "\ue000",
    "unassigned": "\u0378",
    "256 bytes": "\U00020bb7" * 64,
    "slash": "../East",
    "quote": 'East"',
    "markup": "<b>East</b>",
}


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES)
def test_odd_names_are_refused(name: str) -> None:
    refuse(named(name, "zz"), "members.0.name")
    refuse(content(study=name), "study")
    with pytest.raises(RosterError, match="name"):
        Roster.make("S", 1, COORDINATOR.public, [Member(name, IDENTITIES[0]), MEMBERS[1]])


def test_a_lone_surrogate_is_refused() -> None:
    refuse(named("\ud800", "zz"), "roster")


@pytest.mark.parametrize(
    "name",
    [
        "A",
        "9",
        "St. Mary-North_2",
        "x" * 64,
        "Universit\u00e4tsklinikum K\u00f6ln",
        "H\u00f4pital Saint-Louis",
        "\u0130stanbul T\u0131p",
        "\u0411\u043e\u043b\u044c\u043d\u0438\u0446\u0430 1",
        "\u6771\u4eac\u5927\u5b66\u30d3\u30eb",
        "\U00020bb7" * 48,
    ],
)
def test_ordinary_names_are_accepted(name: str) -> None:
    assert Roster.from_content(named(*sorted((name, "zz")))).identity_of(name)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_an_identity_has_32_bytes(length: int) -> None:
    with pytest.raises(RosterError, match="identity"):
        Roster.make("S", 1, COORDINATOR.public, [Member("A", bytes(length)), MEMBERS[1]])
    with pytest.raises(RosterError, match="coordinator"):
        Roster.make("S", 1, bytes(length), MEMBERS)


@pytest.mark.parametrize("change", [str.upper, lambda key: key[:-1] + "g", lambda key: key + "\n"])
def test_an_identity_is_lower_case_hexadecimal(change: Any) -> None:
    refuse(content(coordinator=change(FORM["coordinator"])), "coordinator")


# Size


def test_the_largest_roster_is_read_with_little_work() -> None:
    names = [f"{number:05}".ljust(64, "x") for number in range(MAX_MEMBERS)]
    data = named(*names)
    assert len(data) < MAX_BYTES
    offered = signed(data)
    roster = with_little_work(lambda: Roster.from_signed(offered))
    assert len(roster.members) == MAX_MEMBERS


def test_one_member_more_is_refused() -> None:
    refuse(named(*(f"{number:05}" for number in range(MAX_MEMBERS + 1))), "members")


LARGE = {
    "brackets": b"[" * MAX_BYTES,
    "objects": (b'{"a":' * MAX_BYTES)[:MAX_BYTES],
    "members": b'{"members":[' + b",".join([b"{}"] * (MAX_BYTES // 3 - 10)) + b"]}",
    "fields": b"{" + b",".join(b'"%x":1' % number for number in range(180_000)) + b"}",
    "one field": b"{" + b",".join([b'"generation":1'] * 190_000) + b"}",
    "one number": b"1" * MAX_BYTES,
    "numbers": b'{"a":[' + b",".join([b"9" * 4000] * 490) + b"]}",
    "one string": b'{"study":"' + b"\\u0041" * 300_000 + b'"}',
    "twenty megabytes": b'{"members":[' + b",".join([b"{}"] * 7_000_000) + b"]}",
}


@pytest.mark.parametrize("data", LARGE.values(), ids=LARGE)
def test_something_large_is_refused_with_little_work(data: bytes) -> None:
    refuses(lambda: Roster.from_content(data), RosterError)
