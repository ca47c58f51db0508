"""What is trained, what is chosen, what is kept, and that it goes on where it stopped."""

from pathlib import Path

import pytest

from lab.experiments import ExperimentError
from lab.sweep import Record, Request, RunFolder, Stopped, sweep
from lab.sweep.pool import SweepFailed
from lab.sweep.sweep import divided
from lab.sweep.train_trial import train
from learning.metrics import Metrics
from tests.lab.conftest import Quiet, plan, tiny


def never() -> bool:
    return False


def held_out(accuracy: float) -> Record:
    metrics = Metrics(0.0, accuracy, 1 - accuracy)
    return Record("", "any", 0, 0.1, "done", held_out=metrics, clients_held_out=metrics)


@pytest.mark.parametrize(
    ("cores", "trainings", "workers", "expected"),
    [
        (2, 100, None, (2, 1)),
        (2, 1, None, (1, 2)),
        (8, 3, None, (3, 2)),
        (8, 100, 2, (2, 4)),
        (2, 100, 4, (4, 1)),
        (2, 0, None, (1, 2)),
    ],
)
def test_cores_are_used_by_processes_first_and_by_loops_where_some_are_left(
    cores: int, trainings: int, workers: int | None, expected: tuple[int, int]
) -> None:
    assert divided(cores, trainings, workers) == expected


def test_candidates_are_tried_on_the_first_seed_and_reported_without_training_again(
    tmp_path: Path, quiet: Quiet
) -> None:
    ours = plan()
    records = sweep(ours, RunFolder(tmp_path), watcher=quiet, stop=never, workers=1)
    # 4 methods × 2 rates on seed 0, then the chosen rate on seed 1; seed 0's is there already.
    assert len(records) == len(quiet.trained) == 4 * 2 + 4
    assert quiet.expected[0][0] == 12
    assert len(ours.finals(records)) == 4 * 2
    assert quiet.expected[1] == (4, 3 * 4 * 6 + 8)


def test_each_seed_chooses_for_itself_where_test_sets_overlap() -> None:
    ours = plan(choose="each-seed")
    assert len(ours.candidates()) == 4 * 2 * 2


def test_data_held_back_for_the_choice_are_trained_on_afterwards() -> None:
    ours = plan(laptop={"validation": {"examples": 4, "held-out": 2}}, settings={"held-out": 0})
    cell = ours.cells[0]
    assert ours.candidate(cell, 0, 0.1).settings.local.examples == 4
    assert ours.final(cell, 0, 0.1).settings.local.examples == 6
    assert ours.candidate(cell, 0, 0.1).key != ours.final(cell, 0, 0.1).key


def test_the_rate_that_is_best_on_validation_data_is_chosen() -> None:
    ours = plan(laptop={"learning-rates": [0.1, 0.5, 1.0]})
    cell = ours.cells[0]
    keys = [ours.candidate(cell, 0, rate).key for rate in ours.rates(cell)]
    records = dict(zip(keys, map(held_out, (0.7, 0.9, 0.9)), strict=True))
    assert ours.rate_of(cell, 1, records) == 0.5  # of equals the smaller

    balanced = plan(judged="balanced-accuracy", laptop={"learning-rates": [0.1, 0.5, 1.0]})
    assert balanced.rate_of(cell, 1, records) == 0.1


def test_a_rate_that_diverged_is_not_chosen_and_none_is_if_all_did() -> None:
    ours = plan()
    cell = ours.cells[0]
    diverged = Record("", "feddc", 0, 0.5, "diverged", reason="too large")
    first, second = (ours.candidate(cell, 0, rate).key for rate in ours.rates(cell))
    assert ours.rate_of(cell, 0, {first: held_out(0.2), second: diverged}) == 0.1
    assert ours.rate_of(cell, 0, {first: diverged, second: diverged}) is None


def test_a_diverged_training_is_a_result_and_no_error() -> None:
    huge = plan(settings={"rounds": 60}, laptop={"learning-rates": [1e30]})
    record = train(huge.final(huge.cells[0], 0, 1e30))
    assert record is not None
    assert record.status == "diverged"
    assert record.test is None
    central = train(huge.final(huge.cells[-1], 0, 1e30))
    assert central is not None
    assert central.status == "diverged"


def test_a_stopped_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    ours, folder, first = plan(), RunFolder(tmp_path), Quiet()
    with pytest.raises(Stopped):
        sweep(ours, folder, watcher=first, stop=lambda: len(first.trained) >= 3, workers=1)
    assert len(folder.records()) == 3

    second = Quiet()
    records = sweep(ours, folder, watcher=second, stop=never, workers=1)
    assert not set(first.trained) & set(second.trained)
    whole = sweep(ours, RunFolder(tmp_path / "whole"), watcher=Quiet(), stop=never, workers=1)
    assert {key: record.test for key, record in records.items()} == {
        key: record.test for key, record in whole.items()
    }


@pytest.mark.slow
def test_processes_train_what_one_process_does(tmp_path: Path, quiet: Quiet) -> None:
    ours = plan(methods=["feddc", "fedavg-b"], laptop={"seeds": 1})
    alone = sweep(ours, RunFolder(tmp_path / "a"), watcher=Quiet(), stop=never, workers=1)
    team = sweep(ours, RunFolder(tmp_path / "b"), watcher=quiet, stop=never, workers=2)
    assert {key: record.test for key, record in team.items()} == {
        key: record.test for key, record in alone.items()
    }


def test_what_is_wrong_with_the_input_is_said_in_one_line(tmp_path: Path, quiet: Quiet) -> None:
    ours = plan(settings={"hospitals": 400})
    with pytest.raises(SweepFailed, match="lower hospitals") as failure:
        sweep(ours, RunFolder(tmp_path), watcher=quiet, stop=never, workers=1)
    assert failure.value.is_input


def test_records_come_back_from_disk_as_they_were(tmp_path: Path) -> None:
    ours = plan()
    record = train(ours.final(ours.cells[0], 0, 0.1))
    assert record is not None
    RunFolder(tmp_path).keep("some", record)
    assert RunFolder(tmp_path).records() == {"some": record}
    # Six rounds, b = 3: two aggregations of four models, four hand-overs.
    assert (record.hand_overs, record.aggregations, record.messages) == (4, 2, 24)
    assert [point[:3] for point in record.curve] == [(3, 1, 12), (6, 2, 24)]
    assert record.curve[-1][3] == pytest.approx(record.test.accuracy)  # type: ignore[union-attr]


def test_an_unfinished_folder_is_found_again_and_a_finished_one_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    request = Request(tiny(), "laptop")
    first = RunFolder.for_request(request)
    assert first.path.parent == Path("runs")
    assert RunFolder.for_request(request).path == first.path
    assert RunFolder.for_request(Request(tiny(), "laptop", seeds=5)).path != first.path
    first.write("results.json", {})
    assert RunFolder.for_request(request).path != first.path


def test_a_folder_of_another_experiment_is_refused(tmp_path: Path) -> None:
    RunFolder.for_request(Request(tiny(), "laptop"), tmp_path / "run")
    with pytest.raises(ExperimentError, match="tiny, not other"):
        RunFolder.for_request(Request(tiny(name="other"), "laptop"), tmp_path / "run")
