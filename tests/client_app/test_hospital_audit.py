"""The hospital: its audit log."""

import hashlib
import json

import numpy as np

from client_app.hospital.agreement.policy import Policy
from client_app.hospital.hospital import Hospital
from client_app.state.audit_log import verify_lines
from client_app.state.store import MappingStore
from protocol.audit_head import AuditHead
from protocol.message_bytes import decode_signed_reply, encode
from protocol.messages import Carries, Hello
from tests.client_app.small_hospital import (
    EVERY_SECOND_LEG_AGGREGATES,
    IDENTITIES,
    NAME,
    OPEN_POLICY,
    PARTITIONS,
    ROSTER,
    STRANGER,
    close,
    descriptor,
    hospital,
    leg,
    model,
    plain,
    set_up,
    signed,
    trained,
    with_value,
)
from tests.client_app.three_hospitals import Study


class RecordingStore(MappingStore):
    """A store that keeps its audit lines, too."""

    def __init__(self, mapping: dict[str, bytes]) -> None:
        super().__init__(mapping)
        self.lines: list[bytes] = []

    def append_audit(self, line: bytes) -> None:
        self.lines.append(line)


def test_a_head_that_the_hospital_did_not_sign_is_ignored() -> None:
    here = hospital()
    invented = AuditHead.signed(STRANGER, 10_000, bytes(32))
    broken = AuditHead(sequence=10_000, digest="0" * 64, signature="0" * 128)

    assert trained(here.answer(leg(model(), leg=1, seen=invented)))
    assert trained(here.answer(leg(model(), leg=2, carries=Carries.ENVELOPE, seen=broken)))


def with_lines() -> tuple[Hospital, RecordingStore]:
    store = RecordingStore({})
    here = Hospital(
        NAME,
        PARTITIONS[NAME],
        store,
        identity=IDENTITIES[NAME],
        roster=ROSTER,
        policy=Policy.parse(OPEN_POLICY, source="test"),
    )
    return here, store


def test_a_line_has_the_digest_of_the_whole_reply_and_not_only_of_its_model() -> None:
    here, store = with_lines()
    requests = [set_up(descriptor()), leg(model()), close(model())]

    replies = [plain(here.answer(request)) for request in requests]

    digests = [json.loads(line)["reply"]["digest"] for line in store.lines]
    assert digests == [hashlib.sha256(encode(reply)).hexdigest() for reply in replies]
    assert digests[1] != hashlib.sha256(replies[1].payload).hexdigest()


def test_a_line_says_who_gets_a_model_and_whether_the_coordinator_can_read_it() -> None:
    here, store = with_lines()
    here.answer(set_up(descriptor(**EVERY_SECOND_LEG_AGGREGATES)))
    assert trained(here.answer(leg(model())))
    assert trained(here.answer(leg(model(), leg=2, carries=Carries.ENVELOPE, recipient=None)))
    sealed = Study().make_keys()
    sealed_store = RecordingStore(sealed.memories[NAME])
    assert trained(sealed.members[NAME].with_store(sealed_store).answer(leg(model())))

    lines = [json.loads(line)["reply"] for line in (*store.lines[1:], *sealed_store.lines)]
    assert [(line["recipient"], line["readable"]) for line in lines] == [
        ("east", True),  # in simulations only
        ("coordinator", True),
        ("east", False),
    ]


def test_every_request_leaves_one_line_and_the_reply_its_signed_head() -> None:
    here, store = with_lines()
    requests = [
        signed(Hello()),
        set_up(descriptor()),
        leg(model()),
        leg(model()),
        b"noise",
        leg(with_value(np.nan), leg=2),
        close(model()),
    ]

    heads = [decode_signed_reply(here.answer(request)).audit for request in requests]

    assert verify_lines(store.lines).broken is None
    entries = [json.loads(line) for line in store.lines]
    assert [entry["reply"]["kind"] for entry in entries] == [
        "introduction",
        "announcement",
        "trained",
        "repeated",
        "refusal",
        "refusal",
        "closed",
    ]
    # The answer that was repeated carries the head it was given with.
    assert [head.sequence for head in heads if head] == [1, 2, 3, 3, 5, 6, 7]
    assert all(head is not None and head.is_by(IDENTITIES[NAME].public) for head in heads)
