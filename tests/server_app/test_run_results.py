"""What a run leaves behind: every figure recomputed by hand, and nothing after a failure."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from safetensors.numpy import load_file

from learning.local_data import load_dataset, load_partitions
from protocol import __version__
from protocol.message_bytes import encode
from protocol.messages import Close, Trained
from protocol.model_bytes import ModelState
from server_app.config.run_config import Settings
from strategies.session.quorum import QuorumNotReached
from tests.conftest import TINY, Run
from tests.server_app.run_files import FILES, events


def folder_of(run: Run) -> Path:
    return Path(run.settings.algorithm.run_dir)


def accuracy_by_hand(parameters: Any, features: Any, labels: Any) -> float:
    """Return the accuracy of the tiny problem's network, computed in NumPy."""
    hidden = features.astype(np.float64) @ parameters["linear1.weight"].T
    hidden = np.maximum(hidden + parameters["linear1.bias"], 0)
    scores = hidden @ parameters["output.weight"].T + parameters["output.bias"]
    return float((scores.argmax(axis=1) == labels).mean())


# --- a run that succeeds --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    from server_app.run.simulated_run import run
    from tests.conftest import RecordingGrid

    folder = tmp_path_factory.mktemp("results") / "run"
    settings = Settings.from_run_config(TINY | {"run-dir": str(folder)}, source="test")
    grid = RecordingGrid(settings)
    summary = run(grid, settings)
    return Run(settings, grid, summary, load_file(folder / "model.safetensors"))


def test_a_run_leaves_its_files_and_nothing_half_written(finished: Run) -> None:
    assert {path.name for path in folder_of(finished).iterdir()} == FILES


def test_the_settings_are_those_the_run_had(finished: Run) -> None:
    written = json.loads((folder_of(finished) / "settings.json").read_text())

    assert written == finished.settings.as_config()
    assert Settings.from_run_config(written, source="file") == finished.settings


def test_the_model_is_the_final_aggregate(finished: Run) -> None:
    # What was delivered to every hospital at the end.
    delivered = [r.payload for _, r in finished.grid.requests if isinstance(r, Close)]
    final = ModelState.from_bytes(delivered[0])

    assert len(delivered) == 6
    assert finished.model.keys() == final.parameters.keys() | final.buffers.keys()
    for name, array in (final.parameters | final.buffers).items():
        assert np.array_equal(finished.model[name], array)
    # And it is the mean of what they had sent in the last leg.
    last = [r for _, r in finished.grid.replies if isinstance(r, Trained)][-6:]
    sent = [ModelState.from_bytes(reply.payload).parameters for reply in last]
    for name, array in finished.model.items():
        np.testing.assert_allclose(array, np.mean([each[name] for each in sent], 0), rtol=1e-12)


SUMMARY_KEYS = {
    "run_dir",
    "test_accuracy",
    "test_balanced_accuracy",
    "test_loss",
    "mean_client_accuracy",
    "mean_held_out_accuracy",
    "held_out",
    "legs",
    "hand_overs",
    "aggregations",
    "bytes_up",
    "bytes_down",
    "sealed",
    "readable_models",
    "missing",
    "seconds",
    "versions",
}


def test_the_summary_is_what_was_returned_and_has_its_keys(finished: Run) -> None:
    written = json.loads((folder_of(finished) / "summary.json").read_text())

    assert written == finished.summary
    assert set(written) >= SUMMARY_KEYS
    assert written["run_dir"] == str(folder_of(finished).resolve())
    assert written["versions"]["feddc"] == __version__
    assert written["missing"] == {}
    assert written["seconds"] > 0


def test_the_summary_counts_the_legs(finished: Run) -> None:
    # 12 rounds, a communication in each, and every fourth is an aggregation.
    summary = finished.summary

    assert (summary["legs"], summary["hand_overs"], summary["aggregations"]) == (12, 9, 3)
    assert summary["sealed"] is True
    assert summary["readable_models"] == 3 * 6


def test_the_summary_counts_the_bytes_of_the_legs(finished: Run) -> None:
    # Both have a signature of 64 bytes.
    sent = [len(encode(request)) + 64 for _, request in finished.grid.legs()]
    received = [len(encode(r)) + 64 for _, r in finished.grid.replies if isinstance(r, Trained)]

    assert finished.summary["bytes_down"] == sum(sent)
    assert finished.summary["bytes_up"] == sum(received)


def test_the_test_figures_are_of_the_final_model(finished: Run) -> None:
    s = finished.settings
    test = load_dataset(s.local, s.algorithm.seed).test
    expected = accuracy_by_hand(finished.model, test.features, test.labels)

    assert finished.summary["test_accuracy"] == pytest.approx(expected, abs=1e-12)
    last = events(folder_of(finished), "evaluation")[-1]
    for key in ("test_accuracy", "test_balanced_accuracy", "test_loss"):
        assert last[key] == finished.summary[key]


def test_the_mean_client_accuracy_is_of_the_models_before_the_last_aggregation(
    finished: Run,
) -> None:
    s = finished.settings
    test = load_dataset(s.local, s.algorithm.seed).test
    last = [r for _, r in finished.grid.replies if isinstance(r, Trained)][-6:]
    each = [
        accuracy_by_hand(ModelState.from_bytes(r.payload).parameters, test.features, test.labels)
        for r in last
    ]

    assert finished.summary["mean_client_accuracy"] == pytest.approx(np.mean(each), abs=1e-12)


def test_the_mean_held_out_accuracy_is_the_hospitals_own(finished: Run) -> None:
    s = finished.settings
    partitions = load_partitions(s.local, s.algorithm.hospitals, s.algorithm.seed)
    each = [
        accuracy_by_hand(finished.model, partition.held_out.features, partition.held_out.labels)
        for partition in partitions
    ]

    assert finished.summary["mean_held_out_accuracy"] == pytest.approx(np.mean(each), abs=1e-9)
    told = events(folder_of(finished), "held-out")
    assert [event["hospital"] for event in told] == [partition.name for partition in partitions]
    assert [event["accuracy"] for event in told] == pytest.approx(each, abs=1e-9)


def test_metrics_begin_with_the_study_and_end_with_success(finished: Run) -> None:
    lines = events(folder_of(finished))
    start, end = lines[0], lines[-1]

    assert (start["event"], start["legs"], start["rounds"]) == ("start", 12, 12)
    assert start["hospitals"] == [f"hospital-0{n}" for n in range(1, 7)]
    assert start["examples"] == {name: 7 for name in start["hospitals"]}  # noqa: C420
    assert (end["event"], end["status"], end["reason"]) == ("end", "completed", "")
    times = [line["time"] for line in lines]
    assert times == sorted(times)


def test_every_leg_has_its_line_and_one_for_each_hospital(finished: Run) -> None:
    legs = events(folder_of(finished), "leg")
    hospitals = events(folder_of(finished), "hospital")

    assert [leg["leg"] for leg in legs] == list(range(1, 13))
    assert [leg["last_round"] for leg in legs] == list(range(12))
    assert [leg["ending"] for leg in legs] == (["hand-over"] * 3 + ["aggregation"]) * 3
    assert {(leg["asked"], leg["answered"]) for leg in legs} == {(6, 6)}
    assert len(hospitals) == 12 * 6
    for leg in legs:
        own = [line for line in hospitals if line["leg"] == leg["leg"]]
        assert leg["loss"] == pytest.approx(np.mean([line["loss"] for line in own]))
        assert leg["accuracy"] == pytest.approx(np.mean([line["accuracy"] for line in own]))
        weights = {line["weight"] for line in own}
        assert weights == ({None} if leg["ending"] == "hand-over" else {1.0})


def test_the_lines_of_hospitals_are_their_replies(finished: Run) -> None:
    replies = [r for _, r in finished.grid.replies if isinstance(r, Trained)]
    lines = events(folder_of(finished), "hospital")

    for reply, line in zip(replies, lines, strict=True):
        assert (line["loss"], line["accuracy"]) == (reply.loss, reply.accuracy)
        assert line["held_out_accuracy"] == reply.held_out_accuracy
        assert (line["bytes_up"], line["problem"]) == (len(encode(reply)) + 64, "")


def test_the_plot_is_a_picture_with_both_curves(finished: Run) -> None:
    path = folder_of(finished) / "accuracy.png"
    pixels = image.imread(path)

    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert pixels.shape[:2] == (480, 840)
    # tab:green and tab:orange, as matplotlib has them.
    for colour in ((44, 160, 44), (255, 127, 14)):
        distance = np.abs(pixels[..., :3] * 255 - colour).max(axis=-1)
        assert (distance < 3).sum() > 50


def test_no_line_names_where_a_model_went(finished: Run) -> None:
    # Routes are the coordinator's secret: results are shown around.
    for event in events(folder_of(finished)):
        assert "recipient" not in event


# --- a run that fails -----------------------------------------------------------------------------


def test_a_failed_run_says_why_and_has_no_summary(run_tiny: Any, tmp_path: Path) -> None:
    # Steps this large leave no number finite, which hospitals notice and refuse to go on with.
    with pytest.raises(QuorumNotReached) as failure:
        run_tiny(learning_rate=1e8, rounds=40)

    folder = tmp_path / "run"
    end = events(folder)[-1]
    assert (end["event"], end["status"]) == ("end", "failed")
    assert end["reason"] == str(failure.value)
    assert "hospital-0" in end["reason"]
    assert {path.name for path in folder.iterdir()} == {
        "settings.json",
        "metrics.jsonl",
        "routes.jsonl",
        "report.html",
        "report-coordinator.html",
    }
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        assert "NaN" not in line
        assert "Infinity" not in line


class Unhappy(Exception):
    """An exception that says nothing."""


def test_a_failure_without_a_word_is_told_by_its_kind(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Unhappy

    monkeypatch.setattr("strategies.feddc.FedDC.start", fail)
    with pytest.raises(Unhappy):
        run_tiny()

    assert events(tmp_path / "run")[-1]["reason"] == "Unhappy"


def test_a_full_disk_is_called_that(
    run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "journal/state")

    monkeypatch.setattr("strategies.feddc.FedDC.start", fail)
    with pytest.raises(OSError, match="No space left"):
        run_tiny()

    reason = events(tmp_path / "run")[-1]["reason"]
    assert reason == "the disk is full: free some space, then run `feddc coordinator resume`"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stopped_run_is_interrupted_not_failed(
    stop: type[BaseException], run_tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr("strategies.feddc.FedDC.start", interrupt)
    with pytest.raises(stop):
        run_tiny()

    end = events(tmp_path / "run")[-1]
    assert (end["status"], end["reason"]) == ("interrupted", "the ServerApp was stopped")
    assert not (tmp_path / "run" / "summary.json").exists()
