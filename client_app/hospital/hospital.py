"""The hospital's side of the protocol: bytes of a signed request in, bytes of a reply out.

The same code answers in simulation, in process, and behind the agent's socket. It treats every
request as hostile input: what was not agreed is refused with a code and changes nothing. All
changes of a request are one transaction: the reply, the new state, and the line in the audit log.
"""

import hashlib
import logging
import time
from typing import Any

from client_app.state.audit_log import AuditLog
from client_app.state.experiment_store import ExperimentStore
from client_app.state.store import Store, StoreFull
from learning.data import Partition
from protocol.descriptor import Descriptor
from protocol.keys import Identity
from protocol.messages import (
    Announcement,
    Close,
    Closed,
    ExchangeKeyShares,
    Hello,
    Introduction,
    OpenKeyShares,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    SetUp,
    TrainLeg,
    encode,
)
from protocol.study.roster import Roster

from . import key_exchange
from .admission import admit, cached_reply, read_descriptor, store_of
from .agreed_experiment import AgreedExperiment
from .leg import serve_leg
from .local_training import LocalTraining
from .log_text import log_text
from .policy import Policy
from .refusal import Refused

logger = logging.getLogger(__name__)
_LONGEST_DETAIL = 300


class Hospital:
    """One member of the study: its name, its examples, its keys and its state.

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
        device: str = "cpu",
    ) -> None:
        if roster.identity_of(name) != identity.public:
            raise ValueError(f"{name} is not on the roster with this identity")
        self.name = name
        self._partition = partition
        self._store = store
        self._identity = identity
        self._roster = roster
        self._policy = policy
        self._device = device
        self._audit_log = AuditLog(store, identity)
        self._trainings: dict[bytes, LocalTraining] = {}

    def answer(self, data: bytes) -> bytes:
        """Answer a request; nothing a request contains makes it raise."""
        started, digest = time.monotonic(), hashlib.sha256(data).digest()
        received: dict[str, Any] = {"digest": digest.hex(), "bytes": len(data)}
        try:
            request = admit(data, self._store, self._roster, self._audit_log)
            received |= request.model_dump(include={"kind", "experiment", "leg"})
            cached = cached_reply(request, digest, self._store, self._roster)
            with self._store.transaction():
                if cached is not None:
                    self._audit_log.append(received, {"kind": "repeated", "bytes": len(cached)})
                    reply = cached
                else:
                    reply = self._complete(request, digest, self._serve(request), received)
            seconds = time.monotonic() - started
            if text := log_text(request, repeated=cached is not None, seconds=seconds):
                logger.info("%s: %s", self.name, text)
            return reply
        except Refused as refusal:
            # The sender wrote part of the detail: it must not be able to forge lines of this log.
            detail = "".join(c if c.isprintable() else "?" for c in str(refusal)[:_LONGEST_DETAIL])
            logger.warning("%s: refused, %s", self.name, detail)
            return self._refusal(refusal.code, received)
        except StoreFull as error:
            logger.error("%s: disk full, %s; free some space there", self.name, error)
            return self._refusal(RefusalCode.DISK_FULL, received)
        except Exception:
            # The traceback may show patient values: it stays in the local log.
            logger.exception("%s: could not serve a request", self.name)
            return self._refusal(RefusalCode.INTERNAL_ERROR, received)

    def record_oversized(self) -> None:
        """Record that a request was refused unread, because it was too long."""
        logger.warning("%s: refused, %s: too long to be read", self.name, RefusalCode.TOO_LARGE)
        self._refusal(RefusalCode.TOO_LARGE, {})

    def with_store(self, store: Store) -> "Hospital":
        """Return this hospital with another store, sharing what is costly to build."""
        copy = Hospital(
            self.name,
            self._partition,
            store,
            identity=self._identity,
            roster=self._roster,
            policy=self._policy,
            device=self._device,
        )
        copy._trainings = self._trainings
        return copy

    def _serve(self, request: Request) -> Reply:
        match request:
            case Hello():
                return Introduction(hospital=self.name)
            case SetUp():
                return self._set_up(request)
            case ExchangeKeyShares():
                return key_exchange.exchange_key_shares(
                    request,
                    self._experiment(request),
                    self._identity,
                    self._policy.minimum_cohort,
                )
            case OpenKeyShares():
                ready = key_exchange.open_key_shares(request, self._experiment(request))
                ExperimentStore(self._store, request.experiment).begin_next_generation()
                return ready
            case TrainLeg():
                return serve_leg(request, self._experiment(request), self._policy)
            case Close():
                return self._close(request)

    def _set_up(self, request: SetUp) -> Announcement:
        """Agree to a descriptor once, if the policy allows it, and announce a new key for it."""
        descriptor = read_descriptor(request, self._roster)
        present = ExperimentStore(self._store, request.experiment)
        agreed = present.descriptor
        if agreed is not None:
            # A new generation: other members, but otherwise the same settings.
            before = Descriptor.from_bytes(agreed)
            if descriptor != before.model_copy(update={"roster": descriptor.roster}):
                raise Refused(RefusalCode.DESCRIPTOR_REFUSED, "a generation with other settings")
        self._training(request.payload, descriptor, self._roster)
        examples = len(self._partition.train)
        self._policy.check_experiment(descriptor, self._roster, examples)
        store = present if agreed is None else present.next_generation
        store.destroy()
        store.put("descriptor", request.payload)
        store.put("roster", self._roster.content)
        announced = key_exchange.announce(store, self._identity, self.name, self._roster)
        if not descriptor.sealed:
            present.begin_next_generation()  # there are no keys to wait for
        return Announcement(
            examples=examples if "examples" in self._policy.metrics else None,
            payload=announced.to_bytes(),
        )

    def _close(self, request: Close) -> Closed:
        """Evaluate the final model, and destroy the experiment's keys and state."""
        experiment = self._experiment(request)
        model = experiment.training.read(request.payload)
        metrics = experiment.training.evaluate(model, self._policy.minimum_held_out)
        experiment.store.destroy()
        return Closed(
            held_out_loss=self._policy.rounded("held-out", metrics.loss if metrics else None),
            held_out_accuracy=self._policy.rounded(
                "held-out", metrics.accuracy if metrics else None
            ),
        )

    def _experiment(
        self, request: ExchangeKeyShares | OpenKeyShares | TrainLeg | Close
    ) -> AgreedExperiment:
        """Return the experiment of a request, with the roster of its generation."""
        store = store_of(request, self._store)
        agreed, roster = store.descriptor, store.roster
        if agreed is None or roster is None:
            raise Refused(RefusalCode.UNKNOWN_EXPERIMENT, f"no agreement on {store.experiment}")
        descriptor = Descriptor.from_bytes(agreed)
        training = self._training(agreed, descriptor, roster)
        return AgreedExperiment(self.name, store, descriptor, roster, training)

    def _training(self, agreed: bytes, descriptor: Descriptor, roster: Roster) -> LocalTraining:
        if agreed not in self._trainings:
            position = roster.names.index(self.name)
            training = LocalTraining(descriptor, self._partition, position, self._device)
            self._trainings.clear()  # one experiment at a time: data on a device can be large
            self._trainings[agreed] = training
        return self._trainings[agreed]

    def _complete(
        self, request: Request, digest: bytes, reply: Reply, received: dict[str, Any]
    ) -> bytes:
        """Add the audit line, cache the reply, and return it."""
        sent: dict[str, Any] = {
            "kind": reply.kind,
            "bytes": len(reply.payload),
            "digest": hashlib.sha256(reply.payload).hexdigest(),
        }
        if isinstance(request, TrainLeg):
            sent["recipient"] = request.recipient or "coordinator"
        head = self._audit_log.append(received, sent)
        answer = encode(reply.model_copy(update={"audit": head}))
        if not isinstance(request, Hello):
            store = store_of(request, self._store)
            store.cache_reply(request.kind, digest, answer)
            if isinstance(request, TrainLeg):
                store.last_leg = request.leg
        return answer

    def _refusal(self, code: RefusalCode, received: dict[str, Any]) -> bytes:
        try:
            with self._store.transaction():
                head = self._audit_log.append(received, {"kind": "refusal", "refusal": code})
        except StoreFull:
            # Not even a line of the log fits: send the code and the present head.
            head, code = self._audit_log.head(), RefusalCode.DISK_FULL
        return encode(Refusal(code=code, audit=head))
