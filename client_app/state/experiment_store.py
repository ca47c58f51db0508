"""What a hospital writes down about one experiment, so that it can go on after any crash."""

from protocol.bundle import from_bundle
from protocol.keys import SealingKey
from protocol.membership import Announced
from protocol.study.roster import Roster

from .store import Store

_LEG_BYTES = 8
_OF_AN_GENERATION = (
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


class Notebook:
    """The pages of one experiment in a hospital's store."""

    def __init__(self, store: Store, experiment: str, *, section: str = "") -> None:
        self._store = store
        self.experiment = experiment
        self._prefix = f"{experiment}/{section}"

    def page(self, name: str) -> bytes | None:
        return self._store.get(f"{self._prefix}{name}")

    def write(self, name: str, value: bytes) -> None:
        self._store.put(f"{self._prefix}{name}", value)

    def destroy(self, *kept: str) -> None:
        """Forget everything, keys first of all, except the pages named."""
        pages = {name: self.page(name) for name in kept}
        self._store.delete(self._prefix)
        for name, value in pages.items():
            if value is not None:
                self.write(name, value)

    @property
    def descriptor(self) -> bytes | None:
        return self.page("descriptor")

    # --- generations: the roster and keys that count, until the next begins -----------------------

    @property
    def roster(self) -> Roster | None:
        """Return the roster that this generation's keys are for."""
        stored = self.page("roster")
        return Roster.from_content(stored) if stored is not None else None

    @property
    def next_generation(self) -> "Notebook":
        """Return the store of a generation whose keys are still being made."""
        return Notebook(self._store, self.experiment, section="next-generation/")

    def begin_next_generation(self) -> None:
        """Let the next generation's pages take the place of the present one's."""
        for name in _OF_AN_GENERATION:
            page = self.next_generation.page(name)
            self._store.delete(f"{self._prefix}{name}")
            if page is not None:
                self.write(name, page)
        self.next_generation.destroy()

    # --- answers: the same bytes get the same answer ----------------------------------------------

    def given(self, kind: str) -> tuple[bytes, bytes] | None:
        """Return the digest of the request of this kind last answered, and the answer."""
        stored = self.page(f"answer/{kind}")
        return (stored[:32], stored[32:]) if stored is not None else None

    def give(self, kind: str, digest: bytes, answer: bytes) -> None:
        self.write(f"answer/{kind}", digest + answer)

    @property
    def last_leg(self) -> int:
        return int.from_bytes(self.page("last-leg") or b"", "big")

    @last_leg.setter
    def last_leg(self, leg: int) -> None:
        self.write("last-leg", leg.to_bytes(_LEG_BYTES, "big"))

    # --- envelopes: each is opened once, and none too many go to one hospital ---------------------

    def was_opened(self, leg: int) -> bool:
        """Say whether an envelope sealed in this leg was opened: nobody gets two from one leg."""
        opened = self.page("opened") or b""
        sealed = leg.to_bytes(_LEG_BYTES, "big")
        return any(
            opened[start : start + _LEG_BYTES] == sealed
            for start in range(0, len(opened), _LEG_BYTES)
        )

    def opened(self, leg: int) -> None:
        self.write("opened", (self.page("opened") or b"") + leg.to_bytes(_LEG_BYTES, "big"))

    def sent_to(self, recipient: str) -> int:
        return int.from_bytes(self.page(f"sent-to/{recipient}") or b"", "big")

    @property
    def sent(self) -> int:
        return int.from_bytes(self.page("sent") or b"", "big")

    def count_sent(self, recipient: str) -> None:
        self.write(f"sent-to/{recipient}", (self.sent_to(recipient) + 1).to_bytes(8, "big"))
        self.write("sent", (self.sent + 1).to_bytes(8, "big"))

    # --- keys -------------------------------------------------------------------------------------

    @property
    def sealing_key(self) -> SealingKey | None:
        stored = self.page("sealing-key")
        return SealingKey.from_bytes(stored) if stored is not None else None

    @property
    def announcements(self) -> dict[str, Announced]:
        stored = from_bundle(self.page("announcements") or b"")
        return {name: Announced.from_bytes(name, data) for name, data in stored.items()}
