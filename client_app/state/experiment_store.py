"""What a hospital stores about one experiment, so that it can continue after any crash."""

from protocol.bundle import from_bundle
from protocol.keys import SealingKey
from protocol.membership import Announced
from protocol.study.roster import Roster

from .store import Store

_NUMBER_BYTES = 8
_DIGEST_BYTES = 32
_OF_A_GENERATION = (
    "descriptor",
    "roster",
    "sealing-key",
    "announcements",
    "generation-digest",
    "key-share",
    "member-key",
    "answer/set-up",
    "answer/exchange-key-shares",
    "answer/open-key-shares",
)


class ExperimentStore:
    """The entries of one experiment in a hospital's store, by name."""

    def __init__(self, store: Store, experiment: str, *, section: str = "") -> None:
        self._store = store
        self.experiment = experiment
        self._prefix = f"{experiment}/{section}"

    def get(self, name: str) -> bytes | None:
        return self._store.get(f"{self._prefix}{name}")

    def put(self, name: str, value: bytes) -> None:
        self._store.put(f"{self._prefix}{name}", value)

    def destroy(self) -> None:
        """Delete every entry, the keys included."""
        self._store.delete(self._prefix)

    @property
    def descriptor(self) -> bytes | None:
        """The descriptor that this hospital has agreed to."""
        return self.get("descriptor")

    # --- generations: the present roster and keys stay in use until the next ones are complete ----

    @property
    def roster(self) -> Roster | None:
        """The roster that this generation's keys belong to."""
        stored = self.get("roster")
        return Roster.from_content(stored) if stored is not None else None

    @property
    def next_generation(self) -> "ExperimentStore":
        """The entries of a generation whose keys are not complete yet."""
        return ExperimentStore(self._store, self.experiment, section="next-generation/")

    @property
    def latest_generation(self) -> "ExperimentStore":
        """The next generation if its set-up has begun, else the present one."""
        return self if self.next_generation.descriptor is None else self.next_generation

    def begin_next_generation(self) -> None:
        """Replace the present generation's entries by the next one's, if its set-up has begun."""
        if self.next_generation.descriptor is None:
            return
        for name in _OF_A_GENERATION:
            value = self.next_generation.get(name)
            self._store.delete(f"{self._prefix}{name}")
            if value is not None:
                self.put(name, value)
        self.next_generation.destroy()

    # --- replies: the same bytes get the same reply -----------------------------------------------

    def cached_reply(self, kind: str) -> tuple[bytes, bytes] | None:
        """Return the digest of the last request of this kind, and the reply it got."""
        stored = self.get(f"answer/{kind}")
        return (stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]) if stored is not None else None

    def cache_reply(self, kind: str, digest: bytes, reply: bytes) -> None:
        self.put(f"answer/{kind}", digest + reply)

    @property
    def last_leg(self) -> int:
        return self._number("last-leg")

    @last_leg.setter
    def last_leg(self, leg: int) -> None:
        self._put_number("last-leg", leg)

    # --- envelopes: each is opened once, and one hospital does not get too many -------------------

    def was_opened(self, leg: int) -> bool:
        """Return whether an envelope sealed in this leg was opened; a leg brings one at most."""
        opened = self.get("opened") or b""
        sealed = leg.to_bytes(_NUMBER_BYTES, "big")
        return any(
            opened[start : start + _NUMBER_BYTES] == sealed
            for start in range(0, len(opened), _NUMBER_BYTES)
        )

    def mark_opened(self, leg: int) -> None:
        self.put("opened", (self.get("opened") or b"") + leg.to_bytes(_NUMBER_BYTES, "big"))

    def sent_to(self, recipient: str) -> int:
        """Return how many models were sent to this hospital."""
        return self._number(f"sent-to/{recipient}")

    @property
    def sent(self) -> int:
        """How many models were sent to other hospitals in all."""
        return self._number("sent")

    def count_sent(self, recipient: str) -> None:
        self._put_number(f"sent-to/{recipient}", self.sent_to(recipient) + 1)
        self._put_number("sent", self.sent + 1)

    # --- keys -------------------------------------------------------------------------------------

    @property
    def sealing_key(self) -> SealingKey | None:
        stored = self.get("sealing-key")
        return SealingKey.from_bytes(stored) if stored is not None else None

    @property
    def announcements(self) -> dict[str, Announced]:
        stored = from_bundle(self.get("announcements") or b"")
        return {name: Announced.from_bytes(name, data) for name, data in stored.items()}

    def _number(self, name: str) -> int:
        return int.from_bytes(self.get(name) or b"", "big")

    def _put_number(self, name: str, value: int) -> None:
        self.put(name, value.to_bytes(_NUMBER_BYTES, "big"))
