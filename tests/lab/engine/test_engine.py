"""The engine and the Flower path compute the same parameters, for every method and backend."""

import gc
import signal
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from torch import nn

from client_app.hospital import local_training
from lab.engine import Diverged, Outcome, Speed, leg_by_leg, run
from lab.engine.data import HospitalData
from lab.engine.training_interface import Backend
from lab.flower.in_process import simulate_in_process
from lab.flower.simulate import simulate
from learning.models import ModelError, registry
from learning.models.interface import Model
from operation.config import SettingsError
from server_app.config.run_config import Settings
from tests.conftest import TINY

# Sealing changes nothing in a model's numbers, and takes most of a small run's time.
QUICK = TINY | {"sealed": False, "held-out": 0}
IMAGES = {"dataset": "digits", "examples": 5, "batch_size": 3, "rounds": 6, "aggregation_period": 3}
SMALL_CNN = IMAGES | {"model_options": '{"filters": [2, 3]}'}
# 31 parameters make the Radon number 33.
RADON = {
    "aggregator": "radon",
    "model": "linear",
    "model_options": '{"outputs": 1}',
    "loss": "hinge",
    "hospitals": 35,
    "examples": 3,
    "rounds": 6,
    "aggregation_period": 3,
}

CASES: dict[str, dict[str, Any]] = {
    "FedDC": {},
    # The baselines of the paper.
    "FedAvg(b)": {"daisy_period": 0},
    "FedAvg(1)": {"daisy_period": 0, "aggregation_period": 1},
    "plain daisy-chaining": {"aggregation_period": 0},
    "FedProx": {"aggregator": "fedprox", "proximal_mu": 0.5, "daisy_period": 0},
    "FedAdagrad": {"aggregator": "fedadagrad", "daisy_period": 0},
    "FedYogi": {"aggregator": "fedyogi", "daisy_period": 0},
    "FedAdam": {"aggregator": "fedadam", "daisy_period": 0},
    # The other aggregators, all but one around hand-overs.
    "FedDC, FedProx": {"aggregator": "fedprox", "proximal_mu": 0.5},
    "FedDC, FedAdam, own init": {"aggregator": "fedadam", "init": "own"},
    "FedDC, FedYogi, by examples": {"aggregator": "fedyogi", "weighting": "examples"},
    "FedAvgM": {"aggregator": "fedavgm"},
    "FedAvgM, own init": {"aggregator": "fedavgm", "init": "own"},
    "median": {"aggregator": "median"},
    "trimmed mean": {"aggregator": "trimmed-mean"},
    "Krum": {"aggregator": "krum", "krum_malicious": 1},
    "Multi-Krum": {"aggregator": "multi-krum", "krum_malicious": 1},
    "Bulyan": {"aggregator": "bulyan", "hospitals": 8, "krum_malicious": 1},
    "QFedAvg": {"aggregator": "qfedavg", "daisy_period": 0},
    "Radon point": RADON,
    "geometric median": {"aggregator": "geometric-median", "weighting": "examples"},
    # What the algorithm and the trainer can do besides.
    "longer legs": {"daisy_period": 2, "aggregation_period": 5},
    "own init": {"init": "own"},
    "subsampling": {"fraction": 0.5},
    "subsampling, own init, FedProx": {"fraction": 0.5, "init": "own", "aggregator": "fedprox"},
    "derangement": {"permutation": "derangement"},
    "coverage": {"permutation": "coverage", "aggregation_period": 6, "fraction": 0.7},
    "random schedule": {"schedule": "random", "aggregation_period": 3},
    "unequal sizes": {"split": "skewed", "skew_min_examples": 3, "batch_size": 0},
    "unequal sizes, mini-batches": {"split": "skewed", "skew_min_examples": 3},
    "weights of the chain": {
        "split": "skewed",
        "skew_min_examples": 3,
        "weighting": "chain-examples",
    },
    "weights of the chain, subsampling": {
        "split": "skewed",
        "skew_min_examples": 3,
        "weighting": "chain-examples",
        "fraction": 0.5,
    },
    "whole local sets": {"batch_size": 0},
    "momentum, decay": {"momentum": 0.9, "decay_every": 3, "weight_decay": 0.01},
    "momentum, kept, subsampling": {"momentum": 0.9, "optimizer_state": "kept", "fraction": 0.5},
    "Adam": {"optimizer": "adam", "learning_rate": 0.01, "weight_decay": 0.01},
    # A hospital that was not drawn counts from the aggregate that it received itself.
    "Adam, subsampling": {"optimizer": "adam", "learning_rate": 0.01, "fraction": 0.5},
    "Adam, random schedule, subsampling": {
        "optimizer": "adam",
        "learning_rate": 0.01,
        "schedule": "random",
        "fraction": 0.5,
    },
    "Adam, kept": {"optimizer": "adam", "learning_rate": 0.01, "optimizer_state": "kept"},
    "Adam, kept, subsampling": {
        "optimizer": "adam",
        "learning_rate": 0.01,
        "optimizer_state": "kept",
        "fraction": 0.5,
    },
    "hinge": {"model": "linear", "model_options": '{"outputs": 1}', "loss": "hinge"},
    "convolutions": SMALL_CNN | {"model": "mnist-cnn"},
    # BatchNorm: running statistics and counters are compared as well.
    "BatchNorm": SMALL_CNN | {"model": "mri-cnn"},
    "BatchNorm, own init, subsampling": SMALL_CNN
    | {"model": "mri-cnn", "init": "own", "fraction": 0.5},
    "BatchNorm, unequal sizes": SMALL_CNN
    | {"model": "mri-cnn", "split": "skewed", "skew_min_examples": 2, "batch_size": 0},
    "BatchNorm, median": SMALL_CNN | {"model": "mri-cnn", "aggregator": "median"},
    "BatchNorm, FedAdam, by examples": SMALL_CNN
    | {"model": "mri-cnn", "aggregator": "fedadam", "weighting": "examples"},
    "ResNet": IMAGES | {"model": "resnet-small", "model_options": "{}", "hospitals": 3},
}
SINGLE: dict[str, dict[str, Any]] = {
    "MLP": {},
    "FedAdam": {"aggregator": "fedadam"},
    "Adam": {"optimizer": "adam", "learning_rate": 0.01},
    "float16 on the wire": {"wire_dtype": "float16", "aggregator": "fedprox"},
    "bfloat16 on the wire": {"wire_dtype": "bfloat16", "fraction": 0.5},
    "bfloat16 and BatchNorm": SMALL_CNN | {"model": "mri-cnn", "wire_dtype": "bfloat16"},
}


def settings_of(changes: dict[str, Any]) -> Settings:
    changed = {key.replace("_", "-"): value for key, value in changes.items()}
    return Settings.from_run_config(QUICK | changed, source="test")


def on_flower(settings: Settings, folder: Path) -> dict[str, np.ndarray]:
    simulate_in_process(settings, folder)
    return load_file(folder / "model.safetensors")


def assert_same(outcome: Outcome, expected: dict[str, np.ndarray], **tolerance: float) -> None:
    got = outcome.model.parameters | outcome.model.buffers
    assert set(got) == set(expected)
    for name, array in expected.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_allclose(got[name], array, err_msg=name, **tolerance)


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_both_ways_compute_what_flower_computes(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = settings_of(changes)
    expected = on_flower(settings, tmp_path / "flower")
    for backend in ("batched", "loop"):
        outcome = run(settings, backend=backend, workers=2)
        assert_same(outcome, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("changes", SINGLE.values(), ids=SINGLE)
def test_float32_differs_by_rounding_only(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = settings_of({"precision": "float32"} | changes)
    expected = on_flower(settings, tmp_path / "flower")
    # A last bit that falls otherwise before narrowing is a step of the narrower type.
    loose = 2e-2 if settings.training.wire_dtype != "same" else 2e-4
    for backend in ("batched", "loop"):
        outcome = run(settings, backend=backend, workers=2)
        assert_same(outcome, expected, rtol=loose, atol=loose)


def test_channels_last_changes_the_order_in_memory_only(tmp_path: Path) -> None:
    settings = settings_of(SMALL_CNN | {"model": "mri-cnn"})
    expected = on_flower(settings, tmp_path / "flower")
    assert_same(run(settings, backend="loop-channels-last"), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_the_engine_agrees_with_flowers_ray_simulation(tmp_path: Path) -> None:
    settings = settings_of({"optimizer": "adam", "learning_rate": 0.01, "sealed": True})
    simulate(settings, run_dir=tmp_path / "ray", cpus=2)
    expected = load_file(tmp_path / "ray" / "model.safetensors")
    for backend in ("batched", "loop"):
        assert_same(run(settings, backend=backend), expected, rtol=1e-9, atol=1e-11)


class _WithDropout(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(shape[0], 5), nn.Linear(5, classes)

    def forward(self, x: Any) -> Any:
        return self.output(nn.functional.dropout(self.hidden(x), 0.5, self.training))


@pytest.fixture
def with_dropout(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    model = Model("with-dropout", (), partial(_WithDropout))
    monkeypatch.setitem(registry._BUILT_IN, "with-dropout", model)
    yield {"model": "with-dropout", "model_options": "{}"}
    local_training._shared_network.cache_clear()


def test_dropout_is_drawn_from_the_same_streams(
    tmp_path: Path, with_dropout: dict[str, Any]
) -> None:
    settings = settings_of(with_dropout)
    expected = on_flower(settings, tmp_path / "flower")
    assert_same(run(settings, backend="loop", workers=2), expected, rtol=1e-9, atol=1e-11)
    assert run(settings).backend == "loop"  # no other backend gives a model its own random numbers
    with pytest.raises(ModelError, match="can't be trained batched"):
        run(settings, backend="batched")


def test_the_way_is_chosen_by_measurement() -> None:
    outcome = run(settings_of({"hospitals": 12, "rounds": 2}))
    assert outcome.backend == "batched"  # steps of microseconds: a loop could not be faster


def test_reports_the_aggregates_and_the_clients_as_flowers_run_does(tmp_path: Path) -> None:
    settings = settings_of({"fraction": 0.5})
    summary = simulate_in_process(settings, tmp_path / "flower")
    outcome = run(settings)
    history = outcome.history
    assert outcome.complete
    assert outcome.final is not None
    assert outcome.final.accuracy == pytest.approx(summary["test_accuracy"])
    clients = [metrics.accuracy for metrics in history.clients]
    assert np.mean(clients) == pytest.approx(summary["mean_client_accuracy"])
    assert (history.hand_overs, history.aggregations) == (9, 3)
    assert [entry.round for entry in history.evaluations] == [4, 8, 12]
    assert history.messages == 11 * 3 + 6  # half of six hospitals, and everyone in the last leg
    assert [entry.messages for entry in history.evaluations] == [12, 24, 39]


def test_training_loss_is_the_mean_over_hospitals(tmp_path: Path) -> None:
    import json

    settings = settings_of({"daisy_period": 2})
    simulate_in_process(settings, tmp_path / "flower")
    lines = (tmp_path / "flower" / "metrics.jsonl").read_text().splitlines()
    legs = [event for line in lines if (event := json.loads(line))["event"] == "leg"]
    for backend in ("batched", "loop"):
        training = run(settings, backend=backend).history.training
        assert [entry[0] for entry in training] == [leg["last_round"] + 1 for leg in legs]
        np.testing.assert_allclose([e[1] for e in training], [leg["loss"] for leg in legs])
        np.testing.assert_allclose([e[2] for e in training], [leg["accuracy"] for leg in legs])


def test_evaluates_as_often_as_asked_and_always_at_the_end() -> None:
    settings = settings_of({"daisy_period": 0, "aggregation_period": 1})
    outcome = run(settings, evaluate_every=5, evaluate_clients=False)
    assert [entry.round for entry in outcome.history.evaluations] == [5, 10, 12]
    assert outcome.history.clients == []


RESUMED: dict[str, dict[str, Any]] = {
    "FedAdam": {"aggregator": "fedadam"},
    "FedAvgM, own init": {"aggregator": "fedavgm", "init": "own"},
    "FedProx, subsampling": {"aggregator": "fedprox", "fraction": 0.5},
    "coverage": {"permutation": "coverage", "aggregation_period": 6},
    "Adam, kept": {"optimizer": "adam", "learning_rate": 0.01, "optimizer_state": "kept"},
    "weights of the chain": {
        "split": "skewed",
        "skew_min_examples": 3,
        "weighting": "chain-examples",
    },
    "BatchNorm": SMALL_CNN | {"model": "mri-cnn"},
}


@pytest.mark.parametrize("changes", RESUMED.values(), ids=RESUMED)
def test_a_stopped_run_goes_on_to_the_same_model(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = settings_of(changes)
    whole = run(settings, backend="batched")
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    parts = [
        run(settings, backend="batched", checkpoint=checkpoint, stop=after(legs))
        for legs in (2, 3, 99)
    ]
    assert [part.complete for part in parts] == [False, False, True]
    assert len(parts[1].history.training) == 5
    assert parts[2].history == whole.history
    exact = whole.model.parameters | whole.model.buffers
    assert_same(parts[2], exact, rtol=0, atol=0)
    assert [file.name for file in checkpoint.parent.iterdir()] == [checkpoint.name]


def after(legs: int) -> Callable[[], bool]:
    asked = iter(range(1, 1000))
    return lambda: next(asked) >= legs


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    settings, file = settings_of({}), tmp_path / "checkpoint.safetensors"
    first = run(settings, checkpoint=file)
    rates: list[Speed] = []
    again = run(settings, checkpoint=file, on_progress=rates.append)
    assert rates == []
    assert again.complete
    assert again.history == first.history


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    run(settings_of({}), checkpoint=file, stop=lambda: True)
    with pytest.raises(SettingsError, match=r"checkpoint of another run: delete it or choose"):
        run(settings_of({"learning_rate": 0.2}), checkpoint=file)
    file.write_bytes(b"nonsense")
    with pytest.raises(SettingsError, match="is not a readable checkpoint"):
        run(settings_of({}), checkpoint=file)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    settings = settings_of({"rounds": 5000, "aggregation_period": 1})

    def press(rate: Speed) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with leg_by_leg() as stop:
            outcome = run(
                settings, backend="batched", checkpoint=file, stop=stop, on_progress=press
            )
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with leg_by_leg():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):  # pressed again
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not outcome.complete
    assert 0 < len(outcome.history.training) < 5000
    assert outcome.final is not None
    assert file.exists()


def test_progress_tells_speed_and_time_left() -> None:
    rates: list[Speed] = []
    run(settings_of({"rounds": 40}), backend="batched", on_progress=rates.append)
    assert rates[-1].round == rates[-1].rounds == 40
    assert rates[-1].seconds_left == 0
    # Faster than by the clock on the wall, which also counts evaluation.
    assert rates[-1].client_rounds_per_s >= 6 * 40 / rates[-1].seconds
    assert all(0 <= rate.accuracy <= 1 for rate in rates)


@pytest.mark.parametrize("backend", ["batched", "loop"])
def test_a_run_leaves_none_of_its_data_in_memory(
    monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    made: list[weakref.ref[HospitalData]] = []
    fill = HospitalData.__init__

    def noted(self: HospitalData, *arguments: Any, **named: Any) -> None:
        made.append(weakref.ref(self))
        fill(self, *arguments, **named)

    monkeypatch.setattr(HospitalData, "__init__", noted)
    gc.disable()  # a sweep's next training begins before any collection
    try:
        run(settings_of({"batch_size": 2}), backend=backend, workers=2)
        assert [reference() for reference in made] == [None]
    finally:
        gc.enable()


def test_a_run_that_diverges_says_so() -> None:
    settings = settings_of({"learning_rate": 1e200, "rounds": 8})
    with pytest.raises(Diverged, match=r"round 4: \d of 6 models .* lower the learning rate"):
        run(settings, backend="batched")
