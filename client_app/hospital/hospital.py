"""The hospital's side of the protocol: takes a signed request's bytes, gives a reply's bytes.

The same code answers in simulation, in process, and behind the agent's socket. It trusts nothing
that comes in: whatever is not as agreed is refused with a code, and nothing has changed. What
changes does so in one transaction: the answer, the memory of it, and its line in the audit trail.
"""

import hashlib
import logging
from typing import Any

from client_app.state.audit_log import AuditTrail
from client_app.state.experiment_store import Notebook
from client_app.state.store import STOPPED, Store
from learning.data import Share
from protocol.descriptor import Descriptor, DescriptorError
from protocol.keys import Identity
from protocol.messages import (
    Announcement,
    Close,
    Closed,
    ExchangeKeyShares,
    Hello,
    Introduction,
    MessageError,
    OpenKeyShares,
    Refusal,
    RefusalCode,
    Reply,
    Request,
    SetUp,
    TrainLeg,
    decode_signed_request,
    encode,
    is_signed_by,
)
from protocol.study.roster import Roster

from . import key_exchange
from .leg import serve_leg
from .local_training import LocalTraining
from .policy import Policy
from .refusal import Refused

logger = logging.getLogger(__name__)
_LONGEST_DETAIL = 300


class Hospital:
    """One member of the study: its name, its share of examples, its keys and its memory.

    Not for several threads at once: whoever serves requests asks one at a time.
    """

    def __init__(
        self,
        name: str,
        share: Share,
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
        self._share = share
        self._store = store
        self._identity = identity
        self._roster = roster
        self._policy = policy
        self._device = device
        self._trail = AuditTrail(store, identity)
        self._trainings: dict[bytes, LocalTraining] = {}

    def answer(self, data: bytes) -> bytes:
        """Answer a request; never raises for anything a request could contain."""
        digest = hashlib.sha256(data).digest()
        received: dict[str, Any] = {"digest": digest.hex(), "bytes": len(data)}
        try:
            request = self._admitted(data)
            received |= request.model_dump(include={"kind", "experiment", "leg"})
            answered = self._answered(request, digest)
            with self._store.transaction():
                if answered is not None:
                    self._trail.append(received, {"kind": "repeated", "bytes": len(answered)})
                    return answered
                return self._complete(request, digest, self._serve(request), received)
        except Refused as refusal:
            # Part of the detail was written by the sender: it must not pass for lines of this log.
            detail = "".join(c if c.isprintable() else "?" for c in str(refusal)[:_LONGEST_DETAIL])
            logger.warning("%s: refused, %s", self.name, detail)
            return self._refusal(refusal.code, received)
        except Exception:
            # The traceback may show patient values: it stays here.
            logger.exception("%s: could not serve a request", self.name)
            return self._refusal(RefusalCode.INTERNAL_ERROR, received)

    def turned_away(self, detail: str) -> None:
        """Write down that a request was refused unread."""
        logger.warning("%s: refused, %s: %s", self.name, RefusalCode.TOO_LARGE, detail)
        self._refusal(RefusalCode.TOO_LARGE, {})

    def remembering(self, store: Store) -> "Hospital":
        """Return this hospital over another store, sharing what is costly to build."""
        twin = Hospital(
            self.name,
            self._share,
            store,
            identity=self._identity,
            roster=self._roster,
            policy=self._policy,
            device=self._device,
        )
        twin._trainings = self._trainings
        return twin

    # --- admission: in this order -----------------------------------------------------------------

    def _admitted(self, data: bytes) -> Request:
        """Return the request if it is well-formed, the coordinator's, and not from the future."""
        try:
            request = decode_signed_request(data)
        except MessageError as error:
            raise Refused(RefusalCode.MALFORMED, str(error)) from error
        if not is_signed_by(self._roster.coordinator, data):
            raise Refused(RefusalCode.BAD_SIGNATURE, "not signed by the pinned coordinator")
        seen = request.seen if isinstance(request, TrainLeg) else None
        if seen is not None and self._trail.is_behind(seen) and self._knows(request):
            with self._store.transaction():
                self._store.put(STOPPED, f"line {seen.sequence} was seen".encode())
        if self._store.get(STOPPED) is not None:
            raise Refused(
                RefusalCode.ROLLED_BACK,
                "the coordinator has seen a later line of this hospital's audit trail than it "
                "has: its memory was restored from an old backup, and its operator must decide",
            )
        return request

    def _knows(self, request: Request) -> bool:
        # What was seen in an unknown experiment is of a past that the operator may have ended.
        return (
            isinstance(request, TrainLeg)
            and Notebook(self._store, request.experiment).descriptor is not None
        )

    def _answered(self, request: Request, digest: bytes) -> bytes | None:
        """Return the answer already given to these very bytes; refuse others in their place."""
        if isinstance(request, Hello):
            return None
        notebook = Notebook(self._store, request.experiment)
        leg = request.leg if isinstance(request, TrainLeg) else None
        if leg is not None and leg < notebook.last_leg:
            raise Refused(RefusalCode.OLD_LEG, f"leg {leg} after leg {notebook.last_leg}")
        if notebook.given("close") is not None and not isinstance(request, Close):
            # Its keys are gone: an old set-up, sent again, must not open it a second time.
            raise Refused(RefusalCode.UNKNOWN_EXPERIMENT, f"{request.experiment} is closed")
        if isinstance(request, SetUp) and self._opens_an_generation(notebook, digest):
            return None
        given = self._book(request).given(request.kind)
        if given is None or (leg is not None and leg > notebook.last_leg):
            return None
        if given[0] != digest:
            if isinstance(request, SetUp):
                self._descriptor(request)  # another roster's is refused as such: `join` helps
            raise Refused(RefusalCode.CONFLICTING_REQUEST, f"another {request.kind} was answered")
        return given[1]

    def _opens_an_generation(self, notebook: Notebook, digest: bytes) -> bool:
        """Say whether a set-up is new, and a newer roster pinned than the last keys are for."""
        known = notebook.next_generation.roster or notebook.roster
        given = self._last_book(notebook).given("set-up")
        is_new = given is not None and given[0] != digest
        return is_new and known is not None and self._roster.generation > known.generation

    def _book(
        self, request: SetUp | ExchangeKeyShares | OpenKeyShares | TrainLeg | Close
    ) -> Notebook:
        """Return where a request is stored: keys with the next generation, else with this one."""
        notebook = Notebook(self._store, request.experiment)
        of_keys = isinstance(request, SetUp | ExchangeKeyShares | OpenKeyShares)
        return self._last_book(notebook) if of_keys else notebook

    @staticmethod
    def _last_book(notebook: Notebook) -> Notebook:
        return notebook if notebook.next_generation.descriptor is None else notebook.next_generation

    # --- serving ----------------------------------------------------------------------------------

    def _serve(self, request: Request) -> Reply:
        match request:
            case Hello():
                return Introduction(hospital=self.name)
            case SetUp():
                return self._set_up(request)
            case ExchangeKeyShares():
                notebook, _, _, roster = self._agreed(self._book(request))
                minimum = self._policy.minimum_cohort
                return key_exchange.exchange_key_shares(
                    request, notebook, self._identity, self.name, roster, minimum
                )
            case OpenKeyShares():
                notebook, _, _, roster = self._agreed(self._book(request))
                ready = key_exchange.open_key_shares(request, notebook, self.name, roster)
                self._begin_generation(request.experiment)
                return ready
            case TrainLeg():
                notebook, descriptor, training, roster = self._agreed(self._book(request))
                return serve_leg(
                    request, notebook, descriptor, training, self._policy, self.name, roster
                )
            case Close():
                return self._close(request)

    def _set_up(self, request: SetUp) -> Announcement:
        """Agree to a descriptor, once and by policy, and announce a key made for it."""
        descriptor = self._descriptor(request)
        notebook = Notebook(self._store, request.experiment)
        if (agreed := notebook.descriptor) is not None:
            # A new generation: with other members, and nothing else.
            before = Descriptor.from_bytes(agreed)
            if descriptor != before.model_copy(update={"roster": descriptor.roster}):
                raise Refused(RefusalCode.DESCRIPTOR_REFUSED, "a generation with other settings")
        self._training(request.payload, descriptor, self._roster)
        examples = len(self._share.train)
        self._policy.check_experiment(descriptor, self._roster, examples)
        book = notebook if agreed is None else notebook.next_generation
        book.destroy()
        book.write("descriptor", request.payload)
        book.write("roster", self._roster.content)
        announced = key_exchange.announce(book, self._identity, self.name, self._roster)
        if not descriptor.sealed:
            self._begin_generation(request.experiment)  # there are no keys to wait for
        return Announcement(
            examples=examples if "examples" in self._policy.metrics else None,
            payload=announced.to_bytes(),
        )

    def _descriptor(self, request: SetUp) -> Descriptor:
        try:
            descriptor = Descriptor.from_bytes(request.payload)
        except DescriptorError as error:
            raise Refused(RefusalCode.MALFORMED, str(error)) from error
        if descriptor.experiment != request.experiment:
            raise Refused(RefusalCode.MALFORMED, "the descriptor is of another experiment")
        if descriptor.roster != self._roster.digest:
            raise Refused(RefusalCode.ANOTHER_ROSTER, "not the roster that is pinned here")
        return descriptor

    def _begin_generation(self, experiment: str) -> None:
        notebook = Notebook(self._store, experiment)
        if notebook.next_generation.descriptor is not None:
            notebook.begin_next_generation()

    def _close(self, request: Close) -> Closed:
        """Take the final model, evaluate it, and destroy the experiment's keys and memory."""
        notebook, _, training, _ = self._agreed(self._book(request))
        model = training.read(request.payload)
        figures = training.held_out(model, self._policy.minimum_held_out)
        notebook.destroy()
        return Closed(
            held_out_loss=self._policy.rounded("held-out", figures.loss if figures else None),
            held_out_accuracy=self._policy.rounded(
                "held-out", figures.accuracy if figures else None
            ),
        )

    def _agreed(self, notebook: Notebook) -> tuple[Notebook, Descriptor, LocalTraining, Roster]:
        """Return what is known of an experiment, with the roster of its present generation."""
        agreed, roster = notebook.descriptor, notebook.roster
        if agreed is None or roster is None:
            raise Refused(RefusalCode.UNKNOWN_EXPERIMENT, f"no agreement on {notebook.experiment}")
        descriptor = Descriptor.from_bytes(agreed)
        return notebook, descriptor, self._training(agreed, descriptor, roster), roster

    def _training(self, agreed: bytes, descriptor: Descriptor, roster: Roster) -> LocalTraining:
        if agreed not in self._trainings:
            position = roster.names.index(self.name)
            training = LocalTraining(descriptor, self._share, position, self._device)
            self._trainings.clear()  # one experiment at a time: data on a device can be large
            self._trainings[agreed] = training
        return self._trainings[agreed]

    # --- the end of every request -----------------------------------------------------------------

    def _complete(
        self, request: Request, digest: bytes, reply: Reply, received: dict[str, Any]
    ) -> bytes:
        """Write the audit line, remember the answer, and return it."""
        sent: dict[str, Any] = {
            "kind": reply.kind,
            "bytes": len(reply.payload),
            "digest": hashlib.sha256(reply.payload).hexdigest(),
        }
        if isinstance(request, TrainLeg):
            sent["recipient"] = request.recipient or "coordinator"
        head = self._trail.append(received, sent)
        answer = encode(reply.model_copy(update={"audit": head}))
        if not isinstance(request, Hello):
            self._book(request).give(request.kind, digest, answer)
            if isinstance(request, TrainLeg):
                Notebook(self._store, request.experiment).last_leg = request.leg
        return answer

    def _refusal(self, code: RefusalCode, received: dict[str, Any]) -> bytes:
        with self._store.transaction():
            head = self._trail.append(received, {"kind": "refusal", "refusal": code})
        return encode(Refusal(code=code, audit=head))
