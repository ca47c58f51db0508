"""The history of a run is what its events say, whoever was killed in between."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from operation.runs.curve import Curve
from operation.runs.event_file import FILE_NAME, VERSION, EventFile, EventWriter, NewerEvents
from operation.runs.history import HospitalState, RunHistory


def leg_events(leg: int, *, ending: str = "hand-over", missing: tuple[str, ...] = ()) -> list[Any]:
    names = ("Anna", "Barts")
    hospitals: list[Any] = [
        {
            "event": "hospital",
            "leg": leg,
            "hospital": name,
            "loss": None if name in missing else leg / 10,
            "problem": "not connected" if name in missing else "",
            "bytes_up": 10,
            "bytes_down": 1,
        }
        for name in names
    ]
    end = {
        "event": "leg",
        "leg": leg,
        "last_round": leg - 1,
        "ending": ending,
        "loss": leg / 10,
        "missing": dict.fromkeys(missing, "not connected"),
        "parked": list(missing),
    }
    return [*hospitals, end]


START = {"event": "start", "legs": 4, "rounds": 4, "hospitals": ["Anna", "Barts"]}


def test_a_leg_that_is_written_again_counts_once() -> None:
    once = RunHistory.of(
        [
            START,
            *leg_events(1),
            *leg_events(2, missing=("Barts",)),
            *leg_events(3, ending="aggregation", missing=("Anna",)),
        ]
    )
    resumed = RunHistory.of(
        [
            START,
            *leg_events(1),
            *leg_events(2, missing=("Barts",)),
            *leg_events(3, ending="aggregation", missing=("Anna",)),
            {"event": "resumed", "leg": 1, "legs": 4},
            *leg_events(2, missing=("Barts",)),
            *leg_events(3, ending="aggregation", missing=("Anna",)),
        ]
    )
    for name in ("training", "test", "privacy"):
        assert getattr(resumed, name).columns() == getattr(once, name).columns()
    assert (resumed.bytes_up, resumed.bytes_down) == (60, 6)
    assert resumed.aggregations == once.aggregations == [3]
    assert resumed.absences == {"Anna": 1, "Barts": 1}
    assert resumed.hospitals["Barts"].states == b"tpt"


def test_the_mean_says_of_how_many_hospitals_it_is() -> None:
    history = RunHistory.of([START, *leg_events(1), *leg_events(2, missing=("Barts",))])
    assert history.training.columns()[:4] == [[1, 2], [0.1, 0.2], [None, None], [2, 1]]


def test_each_figure_is_counted_by_itself() -> None:
    """Two disclose the loss, one of them publishes; only the other discloses its accuracy."""
    own = {"leg": 1, "problem": "", "bytes_up": 1}
    history = RunHistory.of(
        [
            START | {"publishing": ["Anna"]},
            {"event": "hospital", "hospital": "Anna", "loss": 0.3, **own},
            {"event": "hospital", "hospital": "Barts", "loss": 0.1, "accuracy": 0.9, **own},
            {"event": "leg", "leg": 1, "ending": "hand-over", "loss": 0.2, "accuracy": 0.9},
        ]
    )
    assert history.training.points == [(1, 0.2, 0.9, 2, 1, 1)]


def test_a_secure_sum_is_of_all_that_answered() -> None:
    leg = {"leg": 1, "ending": "aggregation", "loss": 0.2, "held_out_accuracy": 0.7, "answered": 5}
    history = RunHistory.of([START, {"event": "leg", **leg}])
    assert history.training.columns()[3:] == [[5], [5], [5]]
    assert history.held_out.points[0][2:] == (0.7, 5)


def test_a_hospital_that_is_not_asked_has_no_state_in_that_leg() -> None:
    one = RunHistory().hospital("Anna")
    one.mark(3, HospitalState.TRAINED)
    one.mark(1, HospitalState.MISSING)
    assert one.states == b"m.t"


@pytest.mark.parametrize("count", [1, 7, 40, 41, 1000, 1023])
def test_a_long_curve_is_thinned_out_evenly_and_keeps_its_ends(count: int) -> None:
    curve = Curve(limit=20)
    for x in range(count):
        curve.add(x, x * x)
    xs = [point[0] for point in curve.points]
    assert xs[0] == 0
    assert xs[-1] == count - 1
    assert len(xs) <= 41
    assert all(value == x * x for x, value in curve.points)
    gaps = {after - before for before, after in pairwise(xs[:-1])}
    assert len(gaps) <= 1


def test_a_curve_that_is_cut_back_goes_on_as_if_nothing_had_been() -> None:
    cut = Curve(limit=10)
    for x in range(300):
        cut.add(x, x)
        if x % 7 == 3:  # killed here, and resumed two points back
            for again in range(x - 2, x + 1):
                cut.add(again, again)
    xs = [x for x, _ in cut.points]
    assert xs == sorted(set(xs))
    assert (xs[0], xs[-1]) == (0, 299)
    assert max(b - a for a, b in pairwise(xs)) <= 64


def test_events_have_a_version_and_a_newer_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    writer = EventWriter(path, append=False)
    writer.write("start", legs=1)
    writer.close()
    assert json.loads(path.read_text())["version"] == VERSION
    assert len(EventFile(path).new_events()) == 1

    with path.open("a") as file:
        file.write(json.dumps({"event": "leg", "version": VERSION + 1}) + "\n")
    with pytest.raises(NewerEvents, match="update"):
        EventFile(path).new_events()


def test_a_line_without_a_version_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps(START) + "\n")
    assert RunHistory.read(tmp_path).legs == 4


def test_another_run_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{}\n")
    with pytest.raises(FileExistsError):
        EventWriter(tmp_path / FILE_NAME, append=False)
