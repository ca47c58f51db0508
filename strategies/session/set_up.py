"""Before the first leg and after the last: agreement, keys, and the delivery of the final model.

The coordinator carries announcements and sealed key shares between the hospitals. It can read none
of the key shares, and a list that it changed on the way makes keys that open nothing.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_args

from flwr.app import ConfigRecord

from protocol.bundle import BundleError, from_bundle, to_bundle
from protocol.descriptor import Descriptor, Scalar
from protocol.messages import (
    Announcement,
    Close,
    ExchangeKeyShares,
    KeyShares,
    OpenKeyShares,
    Ready,
    Reply,
    SetUp,
)
from protocol.model_bytes import Wire
from strategies.identifiers import HospitalName
from strategies.settings import FedDCSettings, Weighting

from .exchange import Answer
from .members import Members, WholeRequest
from .quorum import ExperimentFailed
from .sealed_study import SealedStudy

R = TypeVar("R", bound=Reply)
Examples = Mapping[HospitalName, int | None]  # how many each hospital has, if it discloses that


def make_descriptor(
    settings: FedDCSettings, study: SealedStudy, rounds: int, config: ConfigRecord
) -> Descriptor:
    """Return the settings that every hospital agrees to before the first leg."""
    shape: Any = config.get("shape", [])
    classes: Any = config.get("classes", 0)
    training: dict[str, Scalar] = {}
    for key, value in config.items():
        if isinstance(value, bool | int | float | str) and key != "classes":
            training[key] = value
        elif key not in ("shape", "classes"):
            raise ValueError(f"train_config: {key} must be a number, text, true or false")
    return Descriptor(
        experiment=study.experiment,
        rounds=rounds,
        daisy_period=settings.daisy_period,
        aggregation_period=settings.aggregation_period,
        init=settings.init,
        shape=tuple(shape),
        classes=classes,
        training=training,
        training_seed=study.training_seed,
        sealed=study.sealed,
        roster=study.roster.digest,
    )


def agreed_wire(descriptor: Descriptor) -> Wire:
    """Return the number format in which models travel."""
    wire: Any = descriptor.training.get("wire-dtype", "same")
    if wire not in get_args(Wire):
        raise ValueError(f"wire-dtype must be one of {', '.join(get_args(Wire))}, got {wire!r}")
    return cast(Wire, wire)


def set_up(
    members: Members, descriptor: Descriptor, weighting: Weighting, *, timeout: float
) -> Examples:
    """Have every member agree and make the keys; return their numbers of examples."""
    experiment = descriptor.experiment
    agreed = _all(Announcement, _agree(members, descriptor, timeout), "agree")
    if descriptor.sealed:
        announcements: dict[str, bytes] = {name: r.payload for name, r in agreed.items()}
        _make_keys(members, experiment, announcements, timeout=timeout)
    examples = {name: reply.examples for name, reply in agreed.items()}
    check_examples(examples, weighting)
    return examples


def check_examples(examples: Examples, weighting: Weighting) -> None:
    """Refuse weighting by examples where a hospital does not tell how many it has."""
    silent = [name for name, count in examples.items() if count is None]
    if silent and weighting != "equal":
        raise ExperimentFailed(
            f"weighting by examples needs their numbers, which {', '.join(silent)} keeps to "
            "itself: use equal weights"
        )


def collect_agreements(
    members: Members, descriptor: Descriptor, *, timeout: float
) -> dict[HospitalName, str]:
    """Ask all members to agree to a new generation; return the reason for each refusal, or ""."""
    answers = _agree(members, descriptor, timeout)
    return {
        name: ""
        if isinstance(answer.reply, Announcement)
        else answer.problem or "unexpected reply type"
        for name, answer in answers.items()
    }


def close_experiment(
    members: Members, experiment: str, model: bytes, *, timeout: float
) -> Mapping[HospitalName, Answer]:
    """Deliver the final model; a hospital that does not answer has missed only that."""
    return members.ask_all(Close(experiment=experiment, payload=model), timeout=timeout)


def _agree(members: Members, descriptor: Descriptor, timeout: float) -> dict[HospitalName, Answer]:
    request = SetUp(experiment=descriptor.experiment, payload=descriptor.to_bytes())
    return members.ask_all(request, timeout=timeout)


def _make_keys(
    members: Members,
    experiment: str,
    announcements: Mapping[str, bytes],
    *,
    timeout: float,
) -> None:
    request = ExchangeKeyShares(experiment=experiment, payload=to_bundle(announcements))
    answers = members.ask_all(request, timeout=timeout)
    sealed: dict[str, dict[str, bytes]] = {}
    for name, reply in _all(KeyShares, answers, "exchange keys").items():
        try:
            sealed[name] = from_bundle(reply.payload)
        except BundleError as error:
            raise ExperimentFailed(f"{name} sent no key shares: {error}") from error
    requests: dict[HospitalName, WholeRequest] = {}
    for recipient in members.names:
        pieces = {
            sender: shares[recipient] for sender, shares in sealed.items() if recipient in shares
        }
        data = members.sign(OpenKeyShares(experiment=experiment, payload=to_bundle(pieces)))
        requests[recipient] = WholeRequest("open-key-shares", data)
    answers = members.ask_each(requests, timeout=timeout, group="open-key-shares")
    tags = {name: r.confirmation for name, r in _all(Ready, answers, "make its key").items()}
    if len(set(tags.values())) > 1:
        raise ExperimentFailed(
            "the hospitals did not derive the same member key: one of them gave different key "
            "shares to different hospitals"
        )


def _all(kind: type[R], answers: Mapping[HospitalName, Answer], what: str) -> dict[HospitalName, R]:
    """Return everybody's reply; an experiment starts with all members or not at all."""
    replies: dict[HospitalName, R] = {}
    for name, answer in answers.items():
        if not isinstance(answer.reply, kind):
            raise ExperimentFailed(
                f"{name} did not {what}: {answer.problem or 'unexpected reply type'}"
            )
        replies[name] = answer.reply
    return replies
