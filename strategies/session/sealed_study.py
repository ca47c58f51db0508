"""A study of hospitals behind agents: who takes part, the secrets, and how a run is kept going."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from operation.clock import Clock
from protocol.descriptor import Averaging
from protocol.randomness import SEED_BYTES
from protocol.sealing.keys import Identity
from protocol.study.roster import DEFAULT_MINIMUM, Roster

from .observer import Observer
from .reply_notifier import ReplyNotifier
from .storage.journal import Journal


def _new_seed() -> bytes:
    return secrets.token_bytes(SEED_BYTES)


@dataclass(frozen=True)
class SealedStudy:
    """What `FedDC` needs to run the sealed protocol with a study's hospitals.

    Parameters
    ----------
    roster, coordinator
        The members, and the identity that signs requests: the one the roster names.
    experiment
        The experiment's id; random unless given.
    route_seed, training_seed
        The two secrets: routes stay with the coordinator, training streams go to the hospitals.
        Random unless given.
    first_model_from_seed
        Whether `initial_arrays` are the model that hospitals build from the training seed
        themselves. Otherwise the hospitals are sent it, and approve its digest with the rest.
    codebook
        Digest of the study's codebook, if it has one: hospitals that have pinned another refuse.
    sealed
        Whether models are sealed for their recipients in hand-overs, so that nobody in between can
        read them. Real hospitals insist on it.
    averaging
        `secure`: in aggregations the coordinator learns only the sum of the models, which takes
        three messages each way, and more than two thirds of the members. `plain`: it reads every
        model that it aggregates, which hospitals must allow.
    minimum_cohort
        With secure averaging, the fewest models in a sum, if two thirds of the members are fewer.
        Hospitals refuse an experiment whose sums could be of fewer than their policy's.
    quorum, quorum_wait
        Fraction of the drawn hospitals that must answer for a leg to count, and the seconds to wait
        for missing ones before the experiment ends with an error.
    start_timeout
        Seconds to wait at the start until every member is connected.
    approval_wait
        Seconds to wait until the operators of all hospitals have approved the experiment.
    journal
        Keeps the experiment's state. With a journal on disk a killed run can be resumed: call
        `start` on a new FedDC with the same settings, secrets, id and journal.
    newest_roster
        Returns the study's roster. One that is newer than the experiment's opens a new generation
        after the next aggregation, with the members that have pinned it.
    notifier
        Notifies when a reply may be ready; without one, replies are polled for.
    observer
        Receives progress events.
    clock
        Measures and waits; tests move it.
    """

    roster: Roster
    coordinator: Identity = field(repr=False)
    experiment: str = field(default_factory=lambda: secrets.token_hex(8))
    route_seed: bytes = field(default_factory=_new_seed, repr=False)
    training_seed: bytes = field(default_factory=_new_seed, repr=False)
    first_model_from_seed: bool = False
    codebook: bytes | None = None
    sealed: bool = True
    averaging: Averaging = "plain"
    minimum_cohort: int = DEFAULT_MINIMUM
    quorum: float = 0.5
    quorum_wait: float = 0.0
    start_timeout: float = 120.0
    approval_wait: float = 14 * 86400.0
    journal: Journal = field(default_factory=Journal)
    newest_roster: Callable[[], Roster | None] = lambda: None
    notifier: ReplyNotifier | None = None
    observer: Observer = field(default_factory=Observer)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise ValueError(f"quorum must be more than 0 and at most 1, got {self.quorum}")
