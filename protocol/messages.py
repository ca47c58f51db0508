"""Requests and replies between the coordinator and a hospital: what each of them holds.

message_bytes.py makes exact, signed bytes of them. The payload is a descriptor, keys, a model or an
envelope; the courier and Flower do not interpret it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from .audit_head import AuditHead
from .errors import MessageError as MessageError

# Where a request is for any hospital: `Hello`, before the coordinator knows whose node is whose.
ANY_HOSPITAL = "*"

# No control characters and no line breaks: names are written to logs.
Name = Annotated[str, Field(max_length=200, pattern=r"^[^\p{Cc}\p{Zl}\p{Zp}]+$")]
# No slash: hospitals store the state of an experiment under `<experiment>/…`.
ExperimentId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
MAX_LOSS = 1e12  # larger ones, even if finite, would overflow in sums over hospitals
Loss = Annotated[float, Field(ge=-MAX_LOSS, le=MAX_LOSS, allow_inf_nan=False)]
Accuracy = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
LegNumber = Annotated[int, Field(ge=1, lt=2**53)]  # key shares are sealed at leg 0


class Carries(StrEnum):
    """What kind of model a request carries."""

    NOTHING = "nothing"  # the hospital builds its first model: the shared one, or one of its own
    AGGREGATE = "aggregate"  # the coordinator can read it
    SUM = "sum"  # of a secure sum, with its tag; the hospital computes the mean itself
    ENVELOPE = "envelope"  # handed over by another hospital


class RefusalCode(StrEnum):
    """Why a hospital refused. A closed list; the choice never depends on patient values."""

    TOO_LARGE = "too-large"
    MALFORMED = "malformed"
    BAD_SIGNATURE = "bad-signature"
    MISADDRESSED = "misaddressed"
    ROLLED_BACK = "rolled-back"
    UNKNOWN_EXPERIMENT = "unknown-experiment"
    ANOTHER_ROSTER = "another-roster"
    ANOTHER_CODEBOOK = "another-codebook"
    DESCRIPTOR_REFUSED = "descriptor-refused"
    AGAINST_POLICY = "against-policy"
    WAITING_FOR_APPROVAL = "waiting-for-approval"
    REJECTED = "rejected"
    KEYS_REFUSED = "keys-refused"
    NOT_SET_UP = "not-set-up"
    OLD_LEG = "old-leg"
    CONFLICTING_REQUEST = "conflicting-request"
    AGAINST_SCHEDULE = "against-schedule"
    REPLAYED = "replayed"
    ENVELOPE_REFUSED = "envelope-refused"
    MODEL_MISMATCH = "model-mismatch"
    NOT_FINITE = "not-finite"
    COHORT_REFUSED = "cohort-refused"
    SUM_REFUSED = "sum-refused"
    SURVIVORS_REFUSED = "survivors-refused"
    SHARES_REFUSED = "shares-refused"
    OUT_OF_RANGE = "out-of-range"
    UNKNOWN_RECIPIENT = "unknown-recipient"
    TOO_MANY_TO_ONE = "too-many-to-one"
    DISK_FULL = "disk-full"
    INTERNAL_ERROR = "internal-error"


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    payload: bytes = Field(default=b"", exclude=True, repr=False)


class _Request(_Message):
    # Set when the request is signed; a request without an address can't be decoded.
    study: Name = ""
    hospital: Name = ""


class _Reply(_Message):
    # The head of the hospital's audit log after this reply.
    audit: AuditHead | None = None


class Hello(_Request):
    """Asks a hospital for its name, before an experiment exists."""

    kind: Literal["hello"] = "hello"


class SetUp(_Request):
    """Asks a hospital to agree to an experiment; the payload is its descriptor."""

    kind: Literal["set-up"] = "set-up"
    experiment: ExperimentId


class ExchangeKeyShares(_Request):
    """Delivers all announcements and asks for key shares; the payload is a bundle by name."""

    kind: Literal["exchange-key-shares"] = "exchange-key-shares"
    experiment: ExperimentId


class OpenKeyShares(_Request):
    """Delivers the key shares sealed for this hospital; the payload is a bundle by sender."""

    kind: Literal["open-key-shares"] = "open-key-shares"
    experiment: ExperimentId


class TrainLeg(_Request):
    """Asks for one leg: train `local_rounds` rounds from `first_round` and answer.

    With a `recipient` the answer is sealed for that hospital and handed over; without one it is
    sent for aggregation, under masks if there is a `cohort`, whose sum the coordinator learns.
    `sealed_in` is the leg in which the carried envelope was sealed. `vouchers` are signatures of
    members of the former generation over the carried sum, if it is of that generation. `seen` is
    the latest head of the hospital's audit log that the coordinator has received. Training settings
    are in the descriptor.
    """

    kind: Literal["train-leg"] = "train-leg"
    experiment: ExperimentId
    leg: LegNumber
    first_round: Count
    local_rounds: Count
    carries: Carries
    sealed_in: Count | None = None
    recipient: Name | None
    cohort: tuple[Name, ...] | None = None
    vouchers: Mapping[Name, Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]] | None = None
    seen: AuditHead | None = None


class Vouch(_Request):
    """Asks a member to check the sum that a new generation starts from, and to sign it.

    The payload is the sum; newcomers, who lack the keys to check it, are shown the signatures.
    """

    kind: Literal["vouch"] = "vouch"
    experiment: ExperimentId


class SignSurvivors(_Request):
    """Second trip of a secure sum: asks to sign who has sent a masked vector.

    The payload is a bundle of their statements by name.
    """

    kind: Literal["sign-survivors"] = "sign-survivors"
    experiment: ExperimentId
    leg: LegNumber


class Reveal(_Request):
    """Third trip of a secure sum: asks for the shares that remove the masks from the sum.

    The payload is a bundle of two bundles: `signatures` of the survivors over who survived, and the
    `shares` that each of them sealed for this hospital.
    """

    kind: Literal["reveal"] = "reveal"
    experiment: ExperimentId
    leg: LegNumber


class EvaluateFinal(_Request):
    """First trip of the closing secure sum: delivers the final model and asks for its figures.

    The answer holds totals over the hospital's held-out examples, under masks, or zeros. `leg` is
    the number after the last leg's; `cohort` are the members of the sum.
    """

    kind: Literal["evaluate-final"] = "evaluate-final"
    experiment: ExperimentId
    leg: LegNumber
    cohort: tuple[Name, ...]


class Close(_Request):
    """Ends an experiment and delivers the final model.

    `schedule_seed` opens the descriptor's commitment to a random schedule.
    """

    kind: Literal["close"] = "close"
    experiment: ExperimentId
    schedule_seed: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class Introduction(_Reply):
    """Answers Hello."""

    kind: Literal["introduction"] = "introduction"
    hospital: Name


class Announcement(_Reply):
    """Answers SetUp: the hospital agrees and announces its sealing key (the payload).

    `examples`, the number it trains on, is absent if its policy does not disclose it. `publish`:
    what the coordinator hands out may have this hospital's own figures, as far as they leave it.
    """

    kind: Literal["announcement"] = "announcement"
    examples: Count | None
    publish: bool = False


class KeyShares(_Reply):
    """Answers ExchangeKeyShares: this hospital's key share, sealed for each member."""

    kind: Literal["key-shares"] = "key-shares"


class Ready(_Reply):
    """Answers OpenKeyShares: the member key is derived; equal tags show that all are equal."""

    kind: Literal["ready"] = "ready"
    confirmation: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Trained(_Reply):
    """Answers TrainLeg: the trained model (or its envelope) and the training metrics.

    The held-out metrics are those of the aggregate that the request carried, before training; they
    are absent if it carried none or the hospital has no held-out data. A model that is `untrained`
    goes on as it came: the hospital's privacy budget is spent.
    """

    kind: Literal["trained"] = "trained"
    leg: Count
    sealed: bool
    untrained: bool = False
    loss: Loss | None
    accuracy: Accuracy | None
    held_out_loss: Loss | None
    held_out_accuracy: Accuracy | None


class Vouched(_Reply):
    """Answers Vouch: the hospital's signature over the sum."""

    kind: Literal["vouched"] = "vouched"


class Masked(_Reply):
    """Answers TrainLeg with a cohort, or EvaluateFinal: a vector under masks, with seed shares.

    The model in it may be `untrained`, as that of Trained.
    """

    kind: Literal["masked"] = "masked"
    leg: Count
    untrained: bool = False


class Survivors(_Reply):
    """Answers SignSurvivors: the hospital's signature over the survivors."""

    kind: Literal["survivors"] = "survivors"
    leg: Count


class SharesRevealed(_Reply):
    """Answers Reveal: shares of the survivors' seeds. So many models are in the sum."""

    kind: Literal["shares-revealed"] = "shares-revealed"
    leg: Count
    summands: Count


class Closed(_Reply):
    """Answers Close; with plain averaging, with the final model's metrics on held-out data."""

    kind: Literal["closed"] = "closed"
    held_out_loss: Loss | None
    held_out_accuracy: Accuracy | None


class Refusal(_Reply):
    """Answers a request that the hospital does not serve."""

    kind: Literal["refusal"] = "refusal"
    code: RefusalCode


ExperimentRequest = (
    SetUp
    | ExchangeKeyShares
    | OpenKeyShares
    | TrainLeg
    | SignSurvivors
    | Reveal
    | Vouch
    | EvaluateFinal
    | Close
)
Request = Hello | ExperimentRequest
Reply = (
    Introduction
    | Announcement
    | KeyShares
    | Ready
    | Trained
    | Masked
    | Survivors
    | SharesRevealed
    | Vouched
    | Closed
    | Refusal
)
