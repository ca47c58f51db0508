"""The coordinator waits for approvals: without holding up others, at growing intervals, to a limit.

Hospitals are real ones in this process; their operators act at a time of the study's clock.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from client_app.hospital.hospital import Hospital
from client_app.state.decisions import Decision
from protocol.messages import SetUp, TrainLeg
from protocol.study.roster import Roster
from strategies.session.quorum import ExperimentFailed
from strategies.session.storage.journal import DiskJournal
from tests.fake_clock import FakeClock
from tests.strategies.test_generations import (
    ALL,
    FIRST,
    NAMES,
    SECOND,
    Operator,
    Study,
    pins,
    roster,
    run,
)

WHILE = 900.0  # seconds that an operator takes, or a multiple


class Approving(Study):
    """A study whose members named in `operators` decide on experiments when their time comes."""

    def __init__(self, **operators: "Person") -> None:
        super().__init__()
        self.clock = FakeClock(0.0)
        self.operators = operators

    def hospital(self, name: str) -> Hospital:
        person = self.operators.get(name)
        approval = "automatic" if person is None else "each"
        settings = {
            "maximum-fraction-per-recipient": 1.0,
            "approval": approval,
            "plain-aggregation": True,
        }
        decisions = None if person is None else Decided(person, self.clock)
        return self.hospital_with(name, settings, decisions)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        (message,) = messages
        # As a SuperLink does, which can't deliver a message to a node that is not connected.
        is_there = message.metadata.dst_node_id in self.get_node_ids()
        return super().push_messages([message]) if is_there else [""]

    def set_ups(self, name: str) -> int:
        return sum(who == name and isinstance(what, SetUp) for who, what in self.asked)


class Person:
    """An operator who decides on whatever is asked, `after` so many seconds."""

    def __init__(self, after: float, decision: Decision = "approved") -> None:
        self.after, self.decision = after, decision


class Decided:
    """The decisions that a person has made by now."""

    def __init__(self, person: Person, clock: FakeClock) -> None:
        self._person, self._clock = person, clock

    def get(self, fingerprint: str) -> Decision | None:
        return self._person.decision if self._clock.now() >= self._person.after else None


class Watcher(Operator):
    """Writes down for whom the experiment waits, and when it begins."""

    def __init__(self, study: Approving, events: dict[int, Any] | None = None) -> None:
        super().__init__(events or {})
        self._study = study
        self.waited: list[dict[str, str]] = []
        self.fingerprints: set[str] = set()
        self.began: float | None = None

    def waiting_for_approval(self, hospitals: Mapping[str, str], fingerprint: str) -> None:
        self.waited.append(dict(hospitals))
        self.fingerprints.add(fingerprint)

    def started(self, experiment: str, hospitals: Any, legs: int) -> None:
        self.began = self._study.clock.now()


def start(study: Approving, watcher: Watcher, **changes: Any) -> Any:
    return run(study, watcher, [FIRST], clock=study.clock, **changes)


WAITS = "waiting for approval"


def test_it_begins_when_the_last_hospital_has_approved() -> None:
    study = Approving(north=Person(after=3 * WHILE), south=Person(after=WHILE))
    watcher = Watcher(study)
    start(study, watcher)
    assert watcher.waited == [{"north": WAITS, "south": WAITS}, {"north": WAITS}]
    assert watcher.began is not None
    assert 3 * WHILE <= watcher.began <= 3 * WHILE + 61
    assert len(watcher.reports) == 12
    assert not any(report.missing for report in watcher.reports.values())


def test_who_agrees_at_once_is_asked_once_and_the_others_ever_less_often() -> None:
    study = Approving(north=Person(after=WHILE))
    start(study, Watcher(study))
    assert study.set_ups("east") == 1
    # 2 + 4 + 8 + 16 + 32 s, then every minute: each is a line in the audit log.
    assert WHILE / 60 < study.set_ups("north") < WHILE / 60 + 10


def test_timeouts_of_legs_and_of_the_start_do_not_cut_the_wait_short() -> None:
    study = Approving(north=Person(after=2 * WHILE))
    watcher = Watcher(study)
    start(study, watcher, start_timeout=1.0)
    assert watcher.began is not None


def test_it_ends_with_an_error_that_names_who_did_not_approve_in_time() -> None:
    study = Approving(north=Person(after=WHILE))
    with pytest.raises(ExperimentFailed, match=r"can't begin after 600 s: north \(waiting"):
        start(study, Watcher(study), approval_wait=600.0)
    assert 600 <= study.clock.now() < 700


@pytest.mark.parametrize("after", [0.0, 600.0])
def test_a_rejection_ends_the_run_at_once_and_is_named(after: float) -> None:
    study = Approving(north=Person(after, "rejected"), south=Person(after=9 * WHILE))
    with pytest.raises(ExperimentFailed, match="north has rejected the experiment x"):
        start(study, Watcher(study))
    assert study.clock.now() < after + 61
    assert not any(isinstance(request, TrainLeg) for _, request in study.asked)


def test_another_refusal_ends_the_run_at_once_though_others_wait() -> None:
    study = Approving(north=Person(after=9 * WHILE))
    study.pinned["east"] = roster(NAMES[:3], 1)
    with pytest.raises(ExperimentFailed, match="east did not agree: refused: another-roster"):
        start(study, Watcher(study))
    assert study.clock.now() < 60


class Moving(FakeClock):
    """A clock that lets something happen at given times."""

    def __init__(self, events: dict[float, Callable[[], None]]) -> None:
        super().__init__(0.0)
        self._events = events

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        for at in [at for at in self._events if at <= self.time]:
            self._events.pop(at)()


def test_hospitals_come_and_go_while_one_makes_up_its_mind() -> None:
    study = Approving(north=Person(after=3000.0))
    study.clock = Moving(
        {
            100.0: lambda: study.connected.remove("north"),
            200.0: lambda: study.connected.remove("east"),
            4000.0: lambda: study.connected.append("north"),
            5000.0: lambda: study.connected.append("east"),
        }
    )
    watcher = Watcher(study)
    start(study, watcher)
    assert watcher.waited == [{"north": WAITS}, {"east": "not connected"}]
    assert watcher.began is not None
    assert 5000 <= watcher.began < 5100


def test_a_coordinator_killed_while_it_waits_resumes_waiting(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    study = Approving(north=Person(after=3 * WHILE))
    study.clock = Moving({WHILE: kill})
    watcher = Watcher(study)
    with pytest.raises(Killed):
        start(study, watcher, journal=DiskJournal(tmp_path))
    start(study, watcher, journal=DiskJournal(tmp_path))
    assert watcher.waited == [{"north": WAITS}] * 2
    assert len(watcher.fingerprints) == 1
    assert watcher.began is not None
    assert watcher.began >= 3 * WHILE


# --- new generations ------------------------------------------------------------------------------


def test_an_approval_counts_in_a_new_generation() -> None:
    study, newest = Approving(north=Person(after=10.0)), [FIRST]
    watcher = Watcher(study, {4: pins(study, newest, *ALL)})
    run(study, watcher, newest, clock=study.clock)
    assert watcher.waited == [{"north": WAITS}]
    assert watcher.generations == {2: (SECOND.names, {})}


def test_a_newcomer_stays_out_until_it_approves_and_stops_nobody() -> None:
    study, newest = Approving(centre=Person(after=1000.0)), [FIRST]
    watcher = Watcher(study, {1: pins(study, newest, *ALL)})
    watcher.events[7] = lambda: study.clock.sleep(1000.0)
    run(study, watcher, newest, clock=study.clock)
    # Asked after leg 3, when it had not approved, and after leg 9, when it had.
    assert watcher.waited == [{"centre": WAITS}]
    assert watcher.generations == {2: (SECOND.names, {})}
    asked = [(n, r) for n, r in study.asked if isinstance(r, TrainLeg)]
    assert min(r.leg for n, r in asked if n == "centre") == 10
    assert not any(report.missing for report in watcher.reports.values())


def test_a_newcomer_that_never_approves_takes_no_part() -> None:
    study, newest = Approving(centre=Person(after=99 * WHILE)), [FIRST]
    watcher = Watcher(study, {1: pins(study, newest, *ALL)})
    run(study, watcher, newest, clock=study.clock)
    assert watcher.generations == {}
    assert set(watcher.reports[12].weights) == set(NAMES)


def test_a_newcomer_never_delays_the_removal_of_a_member() -> None:
    without_west: Roster = roster(("centre", "east", "north", "south"), 2)
    study, newest = Approving(centre=Person(after=99 * WHILE)), [FIRST]

    def change() -> None:
        newest[0] = without_west
        study.connected = list(ALL)
        study.pinned |= dict.fromkeys(("centre", "east", "north", "south"), without_west)

    watcher = Watcher(study, {1: change})
    run(study, watcher, newest, clock=study.clock)
    assert watcher.generations == {2: (("east", "north", "south"), {"centre": WAITS})}
    assert not any(n == "west" for n, r in study.asked if isinstance(r, TrainLeg) and r.leg > 3)
