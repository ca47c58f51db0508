"""The history of a run, from its events: what terminal, pages, reports and exports show.

A resumed run writes its last legs again. Each leg counts once, as it was written last.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from .curve import Curve
from .event_file import FILE_NAME, Event, EventFile

_HOSPITAL_POINTS = 100  # of each hospital's curve


@dataclass
class HospitalHistory:
    """One hospital as the coordinator sees it: states, codes, and the figures it discloses."""

    examples: int | None = None
    last_seen: float | None = None
    leg: int = 0  # the last one it answered
    loss: float | None = None
    problem: str = ""
    approval: str = ""  # why it has not begun
    is_parked: bool = False
    missing: int = 0  # legs
    bytes_up: int = 0
    bytes_down: int = 0
    held_out_accuracy: float | None = None  # of the final model
    held_out_examples: int | None = None
    publishes: bool = False  # its policy lets its own figures into what is handed out
    curve: Curve = field(default_factory=lambda: Curve(_HOSPITAL_POINTS))  # leg, loss, accuracy
    states: bytearray = field(default_factory=bytearray)  # a HospitalState for each leg
    counted_leg: int = 0  # the last one whose bytes are in the totals
    loss_leg: int = 0  # the last one whose loss it disclosed
    accuracy_leg: int = 0  # the same for its accuracy

    def mark(self, leg: int, state: "HospitalState") -> None:
        """Record how it took part in a leg."""
        self.states.extend(HospitalState.NOT_ASKED.value * (leg - len(self.states)))
        self.states[leg - 1 : leg] = state.value


class HospitalState(Enum):
    """How a hospital took part in a leg; one letter each, for there are many."""

    TRAINED, PARKED, MISSING, NOT_ASKED = b"t", b"p", b"m", b"."


@dataclass
class RunHistory:
    """A run from its first event to its last; feed it every event in order."""

    experiment: str = ""
    is_simulated: bool = False
    legs: int = 0
    rounds: int = 0
    done: int = 0  # the last leg that ended
    last_round: int = -1
    counted_leg: int = 0  # the last one whose absences are in the totals
    ending: str = ""
    loss: float | None = None
    test_accuracy: float | None = None
    missing: dict[str, str] = field(default_factory=dict)  # in the last leg, with the reason
    hospitals: dict[str, HospitalHistory] = field(default_factory=dict)
    # Round, loss, accuracy, then hospitals in the mean of each, and those that do not publish in
    # that of the loss.
    training: Curve = field(default_factory=Curve)
    held_out: Curve = field(default_factory=Curve)  # round, loss, accuracy, hospitals in the mean
    test: Curve = field(default_factory=Curve)  # round, loss, accuracy, balanced accuracy
    privacy: Curve = field(default_factory=Curve)  # round, ε as scheduled so far
    delta: float | None = None  # of that ε
    aggregations: list[int] = field(default_factory=list)  # legs
    lost_chains: int = 0
    missed_rounds: int = 0
    absences: Counter[str] = field(default_factory=Counter)
    held_out_total: Event | None = None  # the final model on all hospitals' held-out examples
    waiting: Event | None = None  # for a quorum, or for answers in the present leg
    approval: Event | None = None
    end: Event | None = None
    started: float | None = None
    latest: float | None = None  # time of the last event

    @staticmethod
    def read(folder: Path) -> "RunHistory":
        """Return the history of the run in a folder."""
        return RunHistory.of(EventFile(folder / FILE_NAME).new_events())

    @staticmethod
    def of(events: Iterable[Event]) -> "RunHistory":
        history = RunHistory()
        for event in events:
            history.add(event)
        return history

    @property
    def has_completed(self) -> bool:
        return self.end is not None and self.end.get("status") == "completed"

    @property
    def bytes_up(self) -> int:
        return sum(hospital.bytes_up for hospital in self.hospitals.values())

    @property
    def bytes_down(self) -> int:
        return sum(hospital.bytes_down for hospital in self.hospitals.values())

    def add(self, event: Event) -> None:
        """Account for the next event."""
        self.latest = event.get("time", self.latest)
        match event.get("event"):
            case "approval":
                self._forget_approval()
                for name, reason in event["hospitals"].items():
                    self.hospital(name).approval = str(reason)
                self.approval, self.end = event, None
            case "start":
                self._add_start(event)
            case "generation":
                self._add_members(event)
            case "resumed":
                self.legs, self.end = event.get("legs", self.legs), None
                self.aggregations = [leg for leg in self.aggregations if leg <= event["leg"]]
            case "hospital":
                self._add_hospital(event)
            case "leg":
                self._add_leg(event)
            case "evaluation":
                self.test_accuracy = event["test_accuracy"]
                self.test.add(
                    event.get("round", self.last_round) + 1,
                    event.get("test_loss"),
                    event["test_accuracy"],
                    event.get("test_balanced_accuracy"),
                )
            case "privacy":
                self.privacy.add(event["round"] + 1, event["epsilon"])
                self.delta = event.get("delta")
            case "held-out":
                one = self.hospital(event["hospital"])
                one.held_out_accuracy = event["accuracy"]
                one.held_out_examples = event.get("examples")
            case "held-out-total":
                self.held_out_total = event
            case "unanswered" | "waiting":
                self.waiting = event
                for name in event.get("hospitals", ()):
                    self.hospital(name).problem = f"no answer since {duration(event['seconds'])}"
            case "end":
                self.end, self.waiting = event, None

    def hospital(self, name: str) -> HospitalHistory:
        return self.hospitals.setdefault(name, HospitalHistory())

    def _add_start(self, event: Event) -> None:
        self.experiment = event.get("experiment", "")
        self.is_simulated = bool(event.get("simulated"))
        self.legs, self.rounds = event["legs"], event.get("rounds", 0)
        self.started, self.end = event.get("time"), None
        self._add_members(event)

    def _add_members(self, event: Event) -> None:
        self._forget_approval()
        examples = event.get("examples") or {}
        for name in event.get("hospitals", ()):
            self.hospital(name).examples = examples.get(name)
            self.hospital(name).publishes = name in event.get("publishing", ())

    def _forget_approval(self) -> None:
        self.approval = None
        for hospital in self.hospitals.values():
            hospital.approval = ""

    def _add_hospital(self, event: Event) -> None:
        one, leg = self.hospital(event["hospital"]), event["leg"]
        one.problem = str(event.get("problem") or "")
        if not one.problem:
            one.leg, one.last_seen = leg, event.get("time")
            one.mark(leg, HospitalState.TRAINED)
        if event.get("loss") is not None:
            one.loss, one.loss_leg = event["loss"], leg
            one.curve.add(leg, event["loss"], event.get("accuracy"))
        if event.get("accuracy") is not None:
            one.accuracy_leg = leg
        if leg > one.counted_leg:
            one.counted_leg = leg
            one.bytes_up += event.get("bytes_up", 0)
            one.bytes_down += event.get("bytes_down", 0)

    def _add_leg(self, event: Event) -> None:
        leg, is_repeated = event["leg"], event["leg"] <= self.counted_leg
        self.done, self.ending, self.end, self.waiting = leg, event["ending"], None, None
        self.counted_leg = max(leg, self.counted_leg)
        self.last_round = event.get("last_round", leg - 1)
        self.missing = {name: str(why) for name, why in dict(event.get("missing", {})).items()}
        self.lost_chains = event.get("lost_chains", 0)
        self.missed_rounds = event.get("missed_rounds", 0)
        parked = set(event.get("parked", ()))
        for name, hospital in self.hospitals.items():
            hospital.is_parked = name in parked
        for name, problem in self.missing.items():
            one = self.hospital(name)
            one.problem = problem
            one.mark(leg, HospitalState.PARKED if name in parked else HospitalState.MISSING)
            if not is_repeated:
                one.missing += 1
                self.absences[name] += 1
        if self.ending == "aggregation" and leg not in self.aggregations[-1:]:
            self.aggregations.append(leg)
        if event.get("loss") is not None:
            self.loss = event["loss"]
        # A mean is of those that disclosed the figure, or a secure sum of all that answered.
        in_sum = event.get("answered", len(self.hospitals))
        losses = [one for one in self.hospitals.values() if one.loss_leg == leg]
        accuracies = [one for one in self.hospitals.values() if one.accuracy_leg == leg]
        self.training.add(
            self.last_round + 1,
            event.get("loss"),
            event.get("accuracy"),
            len(losses) or in_sum,
            len(accuracies) or in_sum,
            sum(not one.publishes for one in losses) if losses else in_sum,
        )
        if event.get("held_out_accuracy") is not None:
            self.held_out.add(
                self.last_round + 1, event.get("held_out_loss"), event["held_out_accuracy"], in_sum
            )


def duration(seconds: float) -> str:
    """Format a time in the largest unit that fits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def waiting_text(event: Event | None) -> str:
    """Describe what an experiment waits for: a quorum, or answers in the present leg."""
    if event is None:
        return ""
    if event.get("event") == "unanswered":
        return f"waiting for {', '.join(event['hospitals'])} since {duration(event['seconds'])}"
    return f"waiting: {event.get('problem') or 'for hospitals'}"


def approval_text(event: Event | None) -> str:
    """Name the hospitals that have not begun, and the fingerprint of what they approve."""
    if event is None:
        return ""
    who = ", ".join(f"{name} ({reason})" for name, reason in event["hospitals"].items())
    return f"waiting to begin: {who}; the experiment's fingerprint is {event['fingerprint']}"
