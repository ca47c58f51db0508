"""Any request and any reply, and messages written by hand."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from protocol.audit_head import AuditHead
from protocol.messages import (
    MAX_LOSS,
    Announcement,
    Carries,
    Close,
    Closed,
    EvaluateFinal,
    ExchangeKeyShares,
    Hello,
    Introduction,
    KeyShares,
    Masked,
    OpenKeyShares,
    Ready,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    Reveal,
    SetUp,
    SharesRevealed,
    SignSurvivors,
    Survivors,
    Trained,
    TrainLeg,
    Vouch,
    Vouched,
)

WIDE = settings(max_examples=200, deadline=None)

names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=40)
counts = st.integers(0, 2**53 - 1)
losses = st.none() | st.floats(-MAX_LOSS, MAX_LOSS)
accuracies = st.none() | st.floats(0, 1)
payloads = st.binary(max_size=64)
experiments = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
hexadecimal = st.binary(min_size=32, max_size=32).map(bytes.hex)
signatures = st.binary(min_size=64, max_size=64).map(bytes.hex)
heads = st.none() | st.builds(
    AuditHead,
    sequence=counts,
    digest=hexadecimal,
    signature=st.binary(min_size=64, max_size=64).map(bytes.hex),
)
addressed: dict[str, Any] = {"study": names, "hospital": names}
requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(Hello, **addressed, payload=payloads),
    st.builds(SetUp, **addressed, experiment=experiments, payload=payloads),
    st.builds(ExchangeKeyShares, **addressed, experiment=experiments, payload=payloads),
    st.builds(OpenKeyShares, **addressed, experiment=experiments, payload=payloads),
    st.builds(
        TrainLeg,
        **addressed,
        experiment=experiments,
        leg=st.integers(1, 2**53 - 1),
        first_round=counts,
        local_rounds=counts,
        carries=st.sampled_from(Carries),
        sealed_in=st.none() | counts,
        recipient=st.none() | names,
        cohort=st.none() | st.lists(names, max_size=4).map(tuple),
        vouchers=st.none() | st.dictionaries(names, signatures, max_size=2),
        seen=heads,
        payload=payloads,
    ),
    st.builds(Vouch, **addressed, experiment=experiments, payload=payloads),
    st.builds(
        SignSurvivors,
        **addressed,
        experiment=experiments,
        leg=st.integers(1, 2**53 - 1),
        payload=payloads,
    ),
    st.builds(
        Reveal,
        **addressed,
        experiment=experiments,
        leg=st.integers(1, 2**53 - 1),
        payload=payloads,
    ),
    st.builds(
        EvaluateFinal,
        **addressed,
        experiment=experiments,
        leg=st.integers(1, 2**53 - 1),
        cohort=st.lists(names, max_size=4).map(tuple),
        payload=payloads,
    ),
    st.builds(
        Close,
        **addressed,
        experiment=experiments,
        schedule_seed=st.none() | hexadecimal,
        payload=payloads,
    ),
)
replies: st.SearchStrategy[Reply] = st.one_of(
    st.builds(Introduction, hospital=names, payload=payloads, audit=heads),
    st.builds(
        Announcement,
        examples=st.none() | counts,
        publish=st.booleans(),
        payload=payloads,
        audit=heads,
    ),
    st.builds(KeyShares, payload=payloads, audit=heads),
    st.builds(Ready, confirmation=hexadecimal, payload=payloads, audit=heads),
    st.builds(
        Trained,
        leg=counts,
        sealed=st.booleans(),
        loss=losses,
        accuracy=accuracies,
        audit=heads,
        held_out_loss=losses,
        held_out_accuracy=accuracies,
        payload=payloads,
    ),
    st.builds(Vouched, payload=payloads, audit=heads),
    st.builds(Masked, leg=counts, payload=payloads, audit=heads),
    st.builds(Survivors, leg=counts, payload=payloads, audit=heads),
    st.builds(SharesRevealed, leg=counts, summands=counts, payload=payloads, audit=heads),
    st.builds(Closed, held_out_loss=losses, held_out_accuracy=accuracies, payload=payloads),
    st.builds(Refusal, code=st.sampled_from(RefusalCode), payload=payloads),
)

LEG: dict[str, Any] = {
    "carries": "envelope",
    "cohort": None,
    "experiment": "e1",
    "first_round": 4,
    "hospital": "south",
    "kind": "train-leg",
    "leg": 3,
    "local_rounds": 2,
    "recipient": "north",
    "sealed_in": 2,
    "seen": None,
    "study": "hearts",
    "vouchers": None,
}
TRAINED: dict[str, Any] = {
    "accuracy": 0.5,
    "audit": None,
    "held_out_accuracy": None,
    "held_out_loss": None,
    "kind": "trained",
    "leg": 3,
    "loss": 1.25,
    "sealed": False,
    "untrained": False,
}


def framed(header: bytes, payload: bytes = b"") -> bytes:
    """Write a message by hand, as the format says."""
    return b"FDC2" + len(header).to_bytes(4, "big") + header + payload


def dumped(fields: object) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
