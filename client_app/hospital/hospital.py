"""The hospital's side of the protocol: bytes of a signed request in, bytes of a reply out.

The same code answers in simulation, in process, and behind the agent's socket. It treats every
request as hostile input: what was not agreed is refused with a code and changes nothing. All
changes of a request are one transaction: the reply, the new state, and the line in the audit log.
"""

import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any

from client_app.final_models.model_folder import FinalModels
from client_app.state.audit_log import AuditLog
from client_app.state.decisions import Decisions, NoDecisions
from client_app.state.experiment_ledger import ExperimentLedger
from client_app.state.experiment_store import ExperimentStore
from client_app.state.expiry import expire_experiments
from client_app.state.privacy.ledger import PrivacyLedger
from client_app.state.privacy.ledger_file import LedgerFile
from client_app.state.store import Store, StoreFull, UnreadableExperiment
from learning.data import Partition
from learning.privacy import NoiseSource
from learning.settings import TrainingSettings
from operation.disk_space import DiskFull
from protocol.descriptor import Descriptor
from protocol.message_bytes import is_signed_by, sign_reply
from protocol.messages import (
    Announcement,
    Close,
    EvaluateFinal,
    ExchangeKeyShares,
    Hello,
    Introduction,
    OpenKeyShares,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    Reveal,
    SetUp,
    SignSurvivors,
    TrainLeg,
    Vouch,
)
from protocol.sealing.keys import Identity
from protocol.study.roster import Roster

from . import key_exchange
from .aggregate import vouch
from .agreement.admission import admit, cached_reply, read_descriptor, store_of
from .agreement.agreed_experiment import AgreedExperiment, Agreement
from .agreement.agreements import Agreements
from .agreement.approval import ApprovalCheck
from .agreement.policy import Policy
from .agreement.terms import terms_of
from .audit_entry import audit_entry
from .closing_sum import evaluate_final
from .figures import allowed_figures
from .final_model import close, remember_first_model
from .leg import serve_leg
from .local_training import check_network, parse_settings
from .log_text import log_text
from .privacy.planned import check_noise
from .privacy.spending import Spending
from .refusal import Refused
from .secure_sum import reveal, sign_survivors

logger = logging.getLogger(__name__)
_LONGEST_DETAIL = 300


class Hospital:
    """One member of the study: its name, its examples, its keys and its state.

    `codebook` is the digest of the pinned codebook, by which the examples were read.
    It keeps the final model of each experiment in `final_models`; a simulated one keeps none.
    Not thread-safe: the caller passes one request at a time.
    """

    def __init__(
        self,
        name: str,
        partition: Partition,
        store: Store,
        *,
        identity: Identity,
        roster: Roster,
        policy: Policy,
        codebook: bytes | None = None,
        decisions: Decisions | None = None,
        final_models: FinalModels | None = None,
        device: str = "cpu",
        privacy_file: LedgerFile | None = None,
        noise: Callable[[], NoiseSource] = NoiseSource,
    ) -> None:
        if roster.identity_of(name) != identity.public:
            raise ValueError(f"{name} is not on the roster with this identity")
        self.name = name
        self._partition = partition
        self._store = store
        self._identity = identity
        self._roster = roster
        self._policy = policy
        self._codebook = codebook
        self._decisions = NoDecisions() if decisions is None else decisions
        self._final_models = final_models
        self._device = device
        self._audit_log = AuditLog(store, identity)
        # A source with a new key from the operating system for every leg; tests inject theirs.
        self._privacy_file, self._noise = privacy_file, noise
        self._privacy_ledger = PrivacyLedger(store, privacy_file)
        ledger = ExperimentLedger(store)
        self._approval = ApprovalCheck(ledger, self._decisions, policy, roster)
        self._agreements = Agreements(
            name, partition, store, private_streams=policy.private_streams, device=device
        )

    def answer(self, data: bytes) -> bytes:
        """Answer a request; nothing a request contains makes it raise."""
        started, digest = time.monotonic(), hashlib.sha256(data).digest()
        received: dict[str, Any] = {"digest": digest.hex(), "bytes": len(data)}
        try:
            self.expire_experiments()
            self._privacy_ledger.reconcile()
            request = admit(data, self.name, self._store, self._roster, self._audit_log)
            received |= request.model_dump(include={"kind", "experiment", "leg"})
            cached = cached_reply(request, digest, self._store, self._roster)
            with self._store.transaction():
                if cached is not None:
                    self._audit_log.append(received, {"kind": "repeated", "bytes": len(cached)})
                    reply = cached
                else:
                    reply = self._complete(request, digest, self._serve(request, digest), received)
            seconds = time.monotonic() - started
            if text := log_text(request, repeated=cached is not None, seconds=seconds):
                logger.info("%s: %s", self.name, text)
            return reply
        except Refused as refusal:
            # The sender wrote part of the detail: it must not be able to forge lines of this log.
            detail = "".join(c if c.isprintable() else "?" for c in str(refusal)[:_LONGEST_DETAIL])
            if not refusal.expected:
                logger.warning("%s: refused, %s", self.name, detail)
            return self._refusal(refusal.code, received, digest, refusal.record)
        except UnreadableExperiment as error:
            logger.error("%s: refused, %s", self.name, error)
            return self._refusal(RefusalCode.UNKNOWN_EXPERIMENT, received, digest)
        except (StoreFull, DiskFull) as error:
            logger.error("%s: disk full, %s; free some space there", self.name, error)
            return self._refusal(RefusalCode.DISK_FULL, received, digest)
        except Exception:
            # The traceback may show patient values: it stays in the local log.
            logger.exception("%s: could not serve a request", self.name)
            return self._refusal(RefusalCode.INTERNAL_ERROR, received, digest)

    def expire_experiments(self) -> None:
        """Destroy the keys of experiments that are older than the policy's lifetime."""
        expire_experiments(self._store, self._audit_log, self._policy.experiment_lifetime)

    def is_signed(self, data: bytes) -> bool:
        """Return whether the coordinator has signed a request; its content may still be refused."""
        return is_signed_by(self._roster.coordinator, data)

    def record_oversized(self, count: int) -> None:
        """Record that so many requests were refused unread, because they were too long."""
        logger.warning(
            "%s: refused, %s: too long to be read (%d)", self.name, RefusalCode.TOO_LARGE, count
        )
        self._refusal(RefusalCode.TOO_LARGE, {"count": count}, b"")

    def write_summaries(self, *, everything: bool = False) -> None:
        """Write audit lines for what was only counted in the minutes that have passed, or ever."""
        with self._store.transaction():
            self._audit_log.write_summaries(everything=everything)

    def with_store(self, store: Store) -> "Hospital":
        """Return this hospital with another store, sharing what is costly to build."""
        copy = Hospital(
            self.name,
            self._partition,
            store,
            identity=self._identity,
            roster=self._roster,
            policy=self._policy,
            codebook=self._codebook,
            decisions=self._decisions,
            final_models=self._final_models,
            device=self._device,
            privacy_file=self._privacy_file,
            noise=self._noise,
        )
        copy._agreements = self._agreements.with_store(store)
        return copy

    def _serve(self, request: Request, digest: bytes) -> Reply:
        match request:
            case Hello():
                return Introduction(hospital=self.name)
            case SetUp():
                return self._set_up(request)
            case ExchangeKeyShares():
                experiment = self._agreements.of(request)
                return key_exchange.exchange_key_shares(
                    request,
                    experiment,
                    self._identity,
                    self._policy.minimum_cohort,
                    self._allowed_figures(experiment),
                )
            case OpenKeyShares():
                ready = key_exchange.open_key_shares(request, self._agreements.of(request))
                ExperimentStore(self._store, request.experiment).begin_next_generation()
                return ready
            case TrainLeg() | EvaluateFinal():
                self._approval.check_not_withdrawn(request.experiment)
                experiment = self._agreements.of(request)
                self._check_codebook(experiment.descriptor)
                self._check_policy(experiment.descriptor, experiment.training.settings)
                self._policy.check_members(
                    experiment.store.announcements or experiment.roster.names
                )
                serving = (experiment, self._identity, self._policy, self._roster)
                if isinstance(request, EvaluateFinal):
                    return evaluate_final(request, *serving)
                if self._final_models is not None:
                    remember_first_model(request, experiment)
                return serve_leg(request, *serving, self._spending(digest))
            case SignSurvivors():
                return sign_survivors(request, self._agreements.of(request), self._identity)
            case Reveal():
                return reveal(request, self._agreements.of(request), self._identity)
            case Vouch():
                return vouch(request, self._agreements.of(request), self._identity)
            case Close():
                closed = close(
                    request, self._agreements.of(request), self._policy, self._final_models
                )
                self._approval.ledger.close(request.experiment)
                return closed

    def _set_up(self, request: SetUp) -> Announcement:
        """Agree to a descriptor once, if the policy allows it, and announce a new key for it."""
        descriptor = read_descriptor(request, self._roster)
        self._check_codebook(descriptor)
        present = ExperimentStore(self._store, request.experiment)
        agreed = present.descriptor
        if agreed is not None:
            # A new generation: other members, but otherwise the same settings.
            before = Descriptor.from_bytes(agreed)
            if descriptor != before.model_copy(update={"roster": descriptor.roster}):
                raise Refused(RefusalCode.DESCRIPTOR_REFUSED, "a generation with other settings")
        settings = parse_settings(descriptor)
        check_noise(descriptor, settings)
        self._check_policy(descriptor, settings)
        check_network(descriptor, settings, self._partition, self._policy.maximum_parameters)
        agreement = self._agreements.build(request.payload, self._roster)
        if agreed is None:
            self._begin(request, agreement)
        else:
            self._approval.continue_under(self._roster, request.experiment)
        store = present if agreed is None else present.next_generation
        store.destroy()
        store.put("descriptor", request.payload)
        store.put("roster", self._roster.content)
        announced = key_exchange.announce(store, self._identity, self.name, self._roster)
        if not descriptor.sealed:
            present.begin_next_generation()  # there are no keys to wait for
        is_told = "examples" in self._policy.metrics and settings.privacy_unit == "none"
        return Announcement(
            examples=len(self._partition.train) if is_told else None,
            publish=self._policy.publish,
            payload=announced.to_bytes(),
        )

    def _begin(self, request: SetUp, agreement: Agreement) -> None:
        """Begin an experiment, if the operator has approved it where that is needed."""
        try:
            self._approval.begin(
                agreement.descriptor, terms_of(agreement, self._roster, self._policy.delta)
            )
        except Refused:
            self._agreements.forget(request.payload)
            raise

    def _check_codebook(self, descriptor: Descriptor) -> None:
        """Refuse an experiment on other examples than those that are pinned here."""
        if descriptor.codebook != self._codebook:
            raise Refused(
                RefusalCode.ANOTHER_CODEBOOK, "not for the codebook that is pinned here, if any"
            )

    def _check_policy(self, descriptor: Descriptor, settings: TrainingSettings) -> None:
        examples = len(self._partition.train)
        self._policy.check_experiment(descriptor, settings, self._roster, examples)

    def _allowed_figures(self, experiment: AgreedExperiment) -> bytes:
        training = experiment.training
        if training.settings.privacy_unit != "none":
            return b"\0"  # figures computed from patients would have no noise
        least = experiment.descriptor.minimum_cohort
        return allowed_figures(self._policy, training.held_out, least)

    def _spending(self, digest: bytes) -> Spending:
        return Spending(self._privacy_ledger, self._policy, digest, self._noise)

    def _complete(
        self, request: Request, digest: bytes, reply: Reply, received: dict[str, Any]
    ) -> bytes:
        """Add the audit line, cache the reply, and return it."""
        sent = audit_entry(request, reply, self._agreements, self._spending(digest))
        head = self._audit_log.append(received, sent)
        answer = self._signed(reply.model_copy(update={"audit": head}), digest)
        if not isinstance(request, Hello | Vouch):
            store = store_of(request, self._store)
            store.cache_reply(request.kind, digest, answer)
            if isinstance(request, TrainLeg | EvaluateFinal):
                store.last_leg = request.leg
        return answer

    def _signed(self, reply: Reply, digest: bytes) -> bytes:
        study = self._roster.study
        return sign_reply(reply, self._identity, study=study, hospital=self.name, request=digest)

    def _refusal(
        self,
        code: RefusalCode,
        received: dict[str, Any],
        digest: bytes,
        record: Callable[[], None] = lambda: None,
    ) -> bytes:
        try:
            with self._store.transaction():
                record()
                head = self._audit_log.append(received, {"kind": "refusal", "refusal": code})
        except StoreFull:
            # Not even a line of the log fits: send the code and the present head.
            head, code = self._audit_log.head(), RefusalCode.DISK_FULL
        return self._signed(Refusal(code=code, audit=head), digest)
