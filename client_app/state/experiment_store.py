"""What a hospital stores about one experiment, so that it can continue after any crash."""

from protocol.sealing.bundle import from_bundle
from protocol.sealing.keys import SealingKey
from protocol.sealing.membership import Announced
from protocol.study.roster import Roster

from .store import ENDED, Store

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
    "pair-seeds",
    "pair-keys",
    "figures",
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

    def delete(self, *names: str) -> None:
        for name in names:
            self._store.delete(f"{self._prefix}{name}")

    def destroy(self) -> None:
        """Destroy every entry of the experiment, or of this section of it."""
        if self._prefix == f"{self.experiment}/":
            self._store.destroy(self.experiment)
        else:
            self._store.delete(self._prefix)

    def expire(self) -> None:
        """Destroy the experiment for good: nothing can open it again."""
        self._store.destroy(self.experiment)
        self._store.put(f"{ENDED}{self.experiment}", b"")

    @property
    def ending(self) -> str:
        """How the experiment ended: "is closed", "has expired", or nothing if it did not."""
        reply = self._store.get(f"{ENDED}{self.experiment}")
        return "" if reply is None else "is closed" if reply else "has expired"

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
        self._store.renew_key(self.experiment)  # the former generation's keys are gone

    # --- replies: the same bytes get the same reply -----------------------------------------------

    def cached_reply(self, kind: str) -> tuple[bytes, bytes] | None:
        """Return the digest of the last request of this kind, and the reply it got."""
        stored = self._store.get(self._reply_name(kind))
        return (stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]) if stored else None

    def cache_reply(self, kind: str, digest: bytes, reply: bytes) -> None:
        self._store.put(self._reply_name(kind), digest + reply)

    def _reply_name(self, kind: str) -> str:
        # The reply to `close` outlives the experiment: the same bytes get it again.
        return f"{ENDED}{self.experiment}" if kind == "close" else f"{self._prefix}answer/{kind}"

    @property
    def last_leg(self) -> int:
        return self._number("last-leg")

    @last_leg.setter
    def last_leg(self, leg: int) -> None:
        self._put_number("last-leg", leg)

    # --- the schedule: each round is trained once -------------------------------------------------

    @property
    def next_round(self) -> int:
        """The first round that this hospital has not trained."""
        return self._number("next-round")

    @next_round.setter
    def next_round(self, round_: int) -> None:
        self._put_number("next-round", round_)

    @property
    def aggregates(self) -> int:
        """How many aggregates of a random schedule were received here."""
        return self._number("aggregates")

    @aggregates.setter
    def aggregates(self, count: int) -> None:
        self._put_number("aggregates", count)

    def record_ending(self, leg: int, *, is_aggregation: bool) -> None:
        """Remember how a leg ended, until a random schedule is opened."""
        entry = (2 * leg + is_aggregation).to_bytes(_NUMBER_BYTES, "big")
        self.put("endings", (self.get("endings") or b"") + entry)

    def endings(self) -> list[tuple[int, bool]]:
        """Return the recorded legs, each with whether it ended in an aggregation."""
        entries = self.get("endings") or b""
        numbers = (
            int.from_bytes(entries[start : start + _NUMBER_BYTES], "big")
            for start in range(0, len(entries), _NUMBER_BYTES)
        )
        return [(number // 2, bool(number % 2)) for number in numbers]

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
