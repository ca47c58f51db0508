"""Which leg a server round belongs to, also where the number of rounds is not known."""

from protocol.schedule import Leg
from strategies.settings import FedDCSettings

_FIRST_HORIZON = 1024


class Rounds:
    """The legs of a plain run, by server round (from 1).

    `rounds` is the number of server rounds. `None`: another strategy calls the hooks and does not
    pass the number on; the schedule then continues as long as rounds are requested.
    """

    def __init__(self, settings: FedDCSettings, route_seed: bytes, rounds: int | None) -> None:
        self._settings, self._route_seed = settings, route_seed
        self._is_open = rounds is None
        self._legs: list[Leg] = []
        self._plan(rounds or _FIRST_HORIZON)

    @property
    def last_leg(self) -> int:
        """Return the number of the last leg; 0 if it is not known."""
        return 0 if self._is_open else self._legs[-1].number

    def leg_of(self, server_round: int) -> Leg:
        """Return the leg that a server round belongs to."""
        # The last round of a schedule always aggregates: an open one ends later than it is asked.
        while self._is_open and server_round >= len(self._legs):
            self._plan(2 * len(self._legs))
        return self._legs[server_round - 1]

    def _plan(self, rounds: int) -> None:
        legs = self._settings.schedule(rounds, route_seed=self._route_seed).legs
        self._legs = [leg for leg in legs for _ in range(leg.local_rounds)]
