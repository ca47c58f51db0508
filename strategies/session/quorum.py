"""Whether a leg has enough hospitals, and how long to wait for those that are missing."""

import math
from collections.abc import Mapping
from logging import WARNING

from operation.clock import Clock
from operation.flower.logger import log
from protocol.schedule import Ending, Leg
from strategies.identifiers import Position
from strategies.routing.planner import Plan

from .members import Members
from .observer import Observer

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0


class ExperimentFailed(RuntimeError):
    """The experiment can't continue; the message says why and names the hospitals concerned."""


class QuorumNotReached(ExperimentFailed):
    """Too few hospitals answered."""


def quorum_problem(
    plan: Plan, members: Members, missing: Mapping[Position, str], *, quorum: float, least: int
) -> str:
    """Return why a leg has fewer hospitals than the quorum or than `least`; "" if it has enough.

    Checked before anybody trains, with the hospitals that are not connected as `missing`, and again
    when the answers are in.
    """
    there = set(plan.drawn) - set(missing)
    if plan.leg.ending is Ending.AGGREGATION:
        # Only models count here: a hospital that has none, because its chain is parked, adds none.
        idle = there - {assignment.hospital for assignment in plan.assignments}
        missing = dict(missing) | dict.fromkeys(idle, "has no model")
        there -= idle
    needed = max(least, math.ceil(quorum * len(plan.drawn)))
    if len(there) >= needed:
        return ""
    return (
        f"leg {plan.leg.number}: {len(there)} of {len(plan.drawn)} hospitals answered, "
        f"{needed} are needed; missing: {members.with_reasons(missing)}"
    )


class QuorumPause:
    """Waits for missing hospitals up to a limit; then the experiment has failed."""

    def __init__(self, leg: Leg, limit: float, observer: Observer, clock: Clock) -> None:
        self._leg, self._limit = leg, limit
        self._observer, self._clock = observer, clock
        self._until: float | None = None
        self._reported, self._seconds = "", _FIRST_PAUSE

    def wait(self, problem: str) -> None:
        """Wait a moment; report the problem whenever it has changed."""
        now = self._clock.now()
        self._until = now + self._limit if self._until is None else self._until
        if now >= self._until:
            waited = f" (waited {self._limit:g} s)" if self._limit else ""
            raise QuorumNotReached(problem + waited)
        if problem != self._reported:
            self._reported = problem
            log(WARNING, "waiting up to %g s: %s", self._limit, problem)
            self._observer.waiting(self._leg, problem)
        # Longer each time: a hospital that refuses writes every refusal to its audit log.
        self._clock.sleep(min(self._seconds, self.seconds_left))
        self._seconds = min(1.5 * self._seconds, _LONGEST_PAUSE)

    @property
    def seconds_left(self) -> float:
        return self._limit if self._until is None else max(0.0, self._until - self._clock.now())
