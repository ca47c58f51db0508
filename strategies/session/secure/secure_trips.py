"""A secure sum at the coordinator: masked vectors in, their sum out, of models or of figures.

Vectors are added as they arrive: nothing here or on disk holds one hospital's model. Who survived,
the masked sum and the seed shares are on disk before the second trip, and the signatures before the
third, so that a resumed run sends the same bytes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from protocol.messages import Masked, Request, Reveal, SharesRevealed, SignSurvivors, Survivors
from protocol.sealing.bundle import from_bundle, to_bundle
from protocol.sealing.keys import SIGNATURE_BYTES
from protocol.secure_sum.member import MaskedVector
from protocol.secure_sum.secure_leg import SecureLeg, SecureSumError
from protocol.secure_sum.statements import (
    Statement,
    check_statement,
    check_survivor_signature,
)
from protocol.secure_sum.total import Total
from protocol.secure_sum.unmasking import revealed_bytes, unmask
from protocol.secure_sum.vector import SumForm
from strategies.identifiers import HospitalName
from strategies.session.exchange import Answer, Outgoing
from strategies.session.members import Members, WholeRequest
from strategies.session.quorum import ExperimentFailed, QuorumPause
from strategies.session.storage.spool import Spool

T = TypeVar("T")
# Trips 2 and 3 are answered at once: nobody trains. Who is silent for longer has dropped out.
_TRIP_SECONDS = 60.0


class SecureSum(Generic[T]):
    """One secure sum. `survivors` is empty until trip 1 is over."""

    def __init__(
        self, leg: SecureLeg, form: SumForm[T], members: Members, spool: Spool, aggregate: bytes
    ) -> None:
        self.leg = leg
        self.survivors: dict[str, Statement] = {}
        self._form, self._members, self._spool = form, members, spool
        self._aggregate = aggregate  # the last one, as every hospital must name it
        self._arrived: dict[str, Statement] = {}
        self._shares: dict[str, bytes] = {}
        self._signatures: dict[str, bytes] = {}
        self._sum = form.zeros()

    # --- trip 1 -----------------------------------------------------------------------------------

    def accept(self, name: HospitalName, reply: Masked) -> str:
        """Add a hospital's vector; return why it can't be added, or ""."""
        try:
            masked = MaskedVector.from_bytes(reply.payload, self._form)
            identity = self._members.roster.identity_of(name) or b""
            check_statement(
                self.leg, name, masked.statement, aggregate=self._aggregate, identity=identity
            )
            if set(masked.shares) != set(self.leg.cohort):
                raise SecureSumError("there are not shares for every member of the cohort")
        except SecureSumError as error:
            return f"sent no vector that can be added: {error}"
        self._sum.add(masked.vector)
        self._arrived[name] = masked.statement
        self._shares[name] = to_bundle(masked.shares)
        return ""

    def fix_survivors(self) -> None:
        """End trip 1: whoever has sent a vector survives. Stores the sum; then save the state."""
        self._spool.put(self._sum_name, self._sum.to_bytes())
        self._spool.put(self._shares_name, to_bundle(self._shares))
        self.survivors = self._arrived

    # --- trips 2 and 3 ----------------------------------------------------------------------------

    def finish(
        self, save: Callable[[], None], pause: Callable[[], QuorumPause], timeout: float
    ) -> tuple[T, bytes]:
        """Have the survivors signed and their masks removed; return what the sum says, and it."""
        if not self._signatures:
            statements = to_bundle({n: s.to_bytes() for n, s in self.survivors.items()})
            request = SignSurvivors(
                experiment=self.leg.experiment, leg=self.leg.leg, payload=statements
            )
            requests: dict[str, Request] = dict.fromkeys(self.survivors, request)
            self._signatures = self._trip(requests, self._signature, pause(), timeout)
            save()
        revealed = self._trip(self._reveal_requests(), self._revealed, pause(), timeout)
        total = self._form.from_bytes(self._spool.get(self._sum_name)).copy()
        unmask(total, self.leg, self.survivors, revealed)
        try:
            decoded = self._form.decode(total, len(self.survivors))
        except SecureSumError as error:
            raise ExperimentFailed(
                f"leg {self.leg.leg}: the secure sum is wrong, a hospital has sent a wrong share "
                f"or vector: {error}"
            ) from error
        survivors = tuple(name for name in self.leg.cohort if name in self.survivors)
        data = memoryview(total.to_bytes())
        count = len(self._members)
        return decoded, Total(self.leg.leg, count, self.leg.cohort, survivors, data).to_bytes()

    def _reveal_requests(self) -> dict[str, Request]:
        signatures = to_bundle(self._signatures)
        shares = {
            sender: from_bundle(data)
            for sender, data in from_bundle(self._spool.get(self._shares_name)).items()
        }
        return {
            name: Reveal(
                experiment=self.leg.experiment,
                leg=self.leg.leg,
                payload=to_bundle(
                    {
                        "signatures": signatures,
                        "shares": to_bundle({sender: s[name] for sender, s in shares.items()}),
                    }
                ),
            )
            for name in self._signatures
        }

    def _trip(
        self,
        requests: Mapping[str, Request],
        read: Callable[[str, Answer], bytes],
        pause: QuorumPause,
        timeout: float,
    ) -> dict[str, bytes]:
        """Send small requests until the threshold has answered; wait while too few do."""
        members = self._members
        kind = next(iter(requests.values())).kind
        waiting: dict[HospitalName, Outgoing] = {
            HospitalName(name): WholeRequest(f"{kind}-{self.leg.leg}", members.sign(request, name))
            for name, request in requests.items()
        }
        found: dict[str, bytes] = {}
        while True:
            missing: dict[HospitalName, str] = {}
            group = f"leg-{self.leg.leg}-{kind}"
            for name, answer in members.ask(
                waiting, timeout=min(timeout, _TRIP_SECONDS), group=group
            ):
                try:
                    found[name] = read(name, answer)
                except SecureSumError as error:
                    missing[name] = str(error)
            if len(found) >= self.leg.threshold:
                return found
            who = ", ".join(f"{name} ({why})" for name, why in missing.items())
            pause.wait(
                f"leg {self.leg.leg}: {len(found)} of {len(requests)} hospitals answered "
                f"{kind}, {self.leg.threshold} are needed; missing: {who}"
            )
            waiting = {name: request for name, request in waiting.items() if name in missing}
            members.present()

    def _signature(self, name: str, answer: Answer) -> bytes:
        reply = answer.reply
        if not isinstance(reply, Survivors) or reply.leg != self.leg.leg:
            raise SecureSumError(answer.problem or "unexpected reply type")
        identity = self._members.roster.identity_of(name) or b""
        if len(reply.payload) != SIGNATURE_BYTES:
            raise SecureSumError("sent no signature")
        check_survivor_signature(self.leg, self.survivors, name, reply.payload, identity=identity)
        return reply.payload

    def _revealed(self, name: str, answer: Answer) -> bytes:
        reply = answer.reply
        if not isinstance(reply, SharesRevealed) or reply.leg != self.leg.leg:
            raise SecureSumError(answer.problem or "unexpected reply type")
        dropped = len(self.leg.cohort) - len(self.survivors)
        if len(reply.payload) != revealed_bytes(len(self.survivors), dropped):
            raise SecureSumError(f"sent {len(reply.payload)} bytes, which are no shares")
        return reply.payload

    # --- saved state ------------------------------------------------------------------------------

    @property
    def stored(self) -> set[str]:
        """The names in the spool that a resumed run needs."""
        return {self._sum_name, self._shares_name} if self.survivors else set()

    def to_state(self) -> dict[str, Any]:
        return {
            "survivors": {n: s.to_bytes().hex() for n, s in self.survivors.items()},
            "signatures": {n: data.hex() for n, data in self._signatures.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `to_state` returned."""
        self.survivors = {
            name: Statement.from_bytes(bytes.fromhex(data))
            for name, data in state["survivors"].items()
        }
        self._signatures = {n: bytes.fromhex(data) for n, data in state["signatures"].items()}

    @property
    def _sum_name(self) -> str:
        return f"masked-sum-{self.leg.leg}"

    @property
    def _shares_name(self) -> str:
        return f"seed-shares-{self.leg.leg}"
