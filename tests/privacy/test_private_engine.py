"""The engine's private training against a plain loop over hospitals with `learning.privacy`."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.engine import run
from lab.engine.private.budget import run_epsilon, with_computed_noise
from lab.engine.private.prepare_private import honest_members, simulated_noise
from lab.engine.routes import Routes
from learning.local_data import load_dataset, load_partitions
from learning.privacy import (
    PatientGradients,
    Patients,
    PrivacyError,
    average_sensitivity,
    member_deviation,
    private_step,
    released_average,
    released_update,
)
from learning.trainer import Network, TaskSpec, local_step, optimizer_spec
from operation.config import SettingsError
from protocol.randomness import derive_seed, shared_init_seed
from protocol.schedule import Ending
from server_app.config.run_config import Settings

HOSPITALS, ROUNDS = 5, 7
BASE = {
    "dataset": "digits",
    "model": "mlp",
    "model-options": '{"hidden": [6]}',
    "hospitals": HOSPITALS,
    "examples": 6,
    "held-out": 0,
    "rounds": ROUNDS,
    "daisy-period": 1,
    "aggregation-period": 3,
    "learning-rate": 0.5,
    "nominal-patients": 8,
    "clip-norm": 0.3,
    "precision": "float64",
}
LOCAL = {"privacy-unit": "patient", "noise-multiplier": 0.7}
CASES = {
    "patient, clipped, no noise": {"privacy-unit": "patient"},
    "patient, local noise": LOCAL,
    "patient, local noise, Adam": LOCAL | {"optimizer": "adam"},
    "patient, local noise, momentum": LOCAL | {"momentum": 0.5},
    "patient, Poisson batches": LOCAL | {"batch-size": 4},
    "patient, cancelled noise": LOCAL | {"average-noise-multiplier": 0.9},
    "patient, cancelled noise, d = 2": LOCAL
    | {"average-noise-multiplier": 0.9, "daisy-period": 2, "aggregation-period": 5},
    "patient, shared noise": {
        "privacy-unit": "patient",
        "average-noise-multiplier": 0.9,
        "daisy-period": 0,
        "aggregation-period": 1,
    },
    "hospital, local noise": {"privacy-unit": "hospital", "noise-multiplier": 0.5},
    "hospital, shared noise": {
        "privacy-unit": "hospital",
        "average-noise-multiplier": 0.5,
        "daisy-period": 0,
        "aggregation-period": 1,
    },
}


def settings(**changed: object) -> Settings:
    return Settings.from_run_config(BASE | changed, source="test")  # type: ignore[arg-type]


def plain_loop(chosen: Settings) -> torch.Tensor:
    """Train hospital by hospital, as each of them would alone; return the last aggregate."""
    training, seed = chosen.training, chosen.algorithm.seed
    dataset = load_dataset(chosen.local, seed)
    partitions = load_partitions(chosen.local, HOSPITALS, seed)
    task = TaskSpec(dataset.shape, len(dataset.classes))
    init = shared_init_seed(derive_seed(seed, "training"))
    network = Network(training, task, seed=init)
    spec, noise = optimizer_spec(training), simulated_noise(chosen)
    cancels = training.average_noise_multiplier > 0
    gradients = PatientGradients(network)
    patients = [Patients.of(network, partition.train) for partition in partitions]
    first = {name: value.detach().clone() for name, value in network.parameters.items()}
    models = [dict(first) for _ in range(HOSPITALS)]
    fresh = _optimizer(spec, first)
    states = [_optimizer(spec, first) for _ in range(HOSPITALS)]
    carried: list[dict[str, torch.Tensor]] = [{} for _ in range(HOSPITALS)]
    route_seed = derive_seed(seed, "route")
    legs = chosen.algorithm.to_schedule(route_seed).legs
    routes = Routes(
        hospitals=HOSPITALS,
        last_leg=legs[-1].number,
        permutation="uniform",
        fraction=1.0,
        route_seed=route_seed,
        counts_visits=False,
    )
    since = 0
    for leg in legs:
        work = routes.work(leg)
        ends = leg.ending is Ending.AGGREGATION
        for hospital, slot in zip(work.hospitals.tolist(), work.slots.tolist(), strict=True):
            own = noise.source.source("hospital", hospital)
            received = {name: value.clone() for name, value in models[slot].items()}
            with torch.no_grad():
                for name, parameter in network.parameters.items():
                    parameter.copy_(received[name])
            for round_ in range(leg.first_round, leg.last_round + 1):
                if training.privacy_unit == "hospital":
                    batch = network.tensors(partitions[hospital].train)
                    local_step(network, spec, round_, batch, states[slot], None)
                    continue
                covered = cancels and ends and round_ == leg.last_round
                step = private_step(
                    gradients,
                    spec,
                    round_,
                    patients[hospital],
                    states[slot],
                    noise=None if covered else own.stream("round", round_),
                    batch=own.stream("batch", round_),
                )
                for name, value in step.injected.items():
                    carried[hospital][name] = carried[hospital].get(name, 0) + value
            released = network.parameters
            if training.privacy_unit == "hospital":
                deviation = (
                    member_deviation(training.average_noise_multiplier, 0.3, noise.honest)
                    if cancels
                    else training.noise_multiplier * 0.3
                )
                drawn = own.stream("update", leg.last_round).normal_like(received)
                released = released_update(received, released, 0.3, deviation, drawn)
            elif cancels and ends:
                deviation = member_deviation(
                    training.average_noise_multiplier,
                    average_sensitivity(training, range(since, leg.last_round + 1)),
                    noise.honest,
                )
                drawn = own.stream("average", leg.last_round).normal_like(received)
                released = released_average(released, carried[hospital], deviation, drawn)
                carried[hospital] = {}
            models[slot] = {name: value.detach().clone() for name, value in released.items()}
        if ends:
            mean = {n: torch.stack([model[n] for model in models]).mean(0) for n in first}
            models = [{n: v.clone() for n, v in mean.items()} for _ in range(HOSPITALS)]
            states = [{n: v.clone() for n, v in fresh.items()} for _ in range(HOSPITALS)]
            routes.aggregated(work)
            since = leg.last_round + 1
        else:
            routes.hand_over(leg, work)
    return torch.cat([value.flatten() for value in mean.values()])


def _optimizer(spec: object, like: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    from learning import optimizers

    return optimizers.initial_state(spec, like)  # type: ignore[arg-type]


def trained(chosen: Settings, backend: str) -> torch.Tensor:
    outcome = run(chosen, backend=backend, workers=1, evaluate_clients=False)  # type: ignore[arg-type]
    assert backend in ("auto", outcome.backend) or chosen.training.privacy_unit == "hospital"
    parameters = outcome.model.parameters.values()
    return torch.cat([torch.from_numpy(np.asarray(array)).flatten() for array in parameters])


@pytest.mark.parametrize("case", CASES)
def test_the_engine_trains_as_hospitals_do_one_by_one(case: str) -> None:
    chosen = settings(**CASES[case])
    wanted = plain_loop(chosen)
    for backend in ("batched", "loop"):
        torch.testing.assert_close(trained(chosen, backend), wanted, rtol=0, atol=1e-9)


def test_noise_that_is_cancelled_in_the_average_leaves_training_without_noise() -> None:
    """With fresh noise that is negligible, only the models in between are noised.

    One leg of hand-overs from the first model: the sum of the updates is known without the noise.
    """
    few = {"rounds": 3, "aggregation-period": 3, "model": "linear", "model-options": "{}"}
    # A tiny clip norm: gradients hardly depend on the model, so neither do the updates.
    tiny = few | {"clip-norm": 1e-6, "privacy-unit": "patient"}
    noisy = tiny | {"noise-multiplier": 3.0, "average-noise-multiplier": 1e-9}
    clean = trained(settings(**tiny), "batched")
    first = trained(settings(**tiny | {"learning-rate": 1e-12}), "batched")
    moved = (clean - first).norm()
    assert (trained(settings(**noisy), "batched") - clean).norm() < 1e-3 * moved
    local = {key: value for key, value in noisy.items() if key != "average-noise-multiplier"}
    assert (trained(settings(**local), "batched") - clean).norm() > 0.1 * moved


def test_a_stopped_run_continues_with_the_noise_it_still_has_to_subtract(tmp_path: Path) -> None:
    chosen = settings(**CASES["patient, cancelled noise"])
    wanted = run(chosen, backend="batched")
    for _ in range(20):
        outcome = run(chosen, backend="batched", checkpoint=tmp_path / "c", stop=lambda: True)
        if outcome.complete:
            break
    for name, array in wanted.model.parameters.items():
        np.testing.assert_array_equal(outcome.model.parameters[name], array)


def test_patients_with_several_examples_are_clipped_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both backends, with hospitals and patients of different sizes, so that both are padded."""
    chosen = settings(**LOCAL | {"dataset": "digits"})
    whole = load_partitions(chosen.local, HOSPITALS, 0)
    uneven = tuple(
        dataclasses.replace(
            partition,
            train=dataclasses.replace(
                partition.train.take(range(6 - number % 2)),
                groups=np.array([0, 0, 1, 2, 2, 2][: 6 - number % 2]) + 10 * number,
            ),
        )
        for number, partition in enumerate(whole)
    )
    for place in (f"{__name__}.load_partitions", "lab.engine.run_state.load_partitions"):
        monkeypatch.setattr(place, lambda *_: uneven)
    wanted = plain_loop(chosen)
    for backend in ("batched", "loop"):
        torch.testing.assert_close(trained(chosen, backend), wanted, rtol=0, atol=1e-9)


def test_convolutions_train_alike_in_both_backends() -> None:
    values = LOCAL | {"model": "mri-cnn", "model-options": '{"filters": [4, 4], "norm": "group"}'}
    chosen = settings(**values | {"rounds": 2, "aggregation-period": 1})
    torch.testing.assert_close(
        trained(chosen, "batched"), trained(chosen, "loop"), rtol=0, atol=1e-9
    )


def test_of_fifty_members_the_noise_of_eighteen_suffices() -> None:
    assert honest_members(50) == 34 - 16
    assert honest_members(3) == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weighting": "examples"}, "needs weighting = equal"),
        ({"aggregator": "fedadam"}, "aggregator = fedavg"),
        ({"fraction": 0.5}, "needs fraction = 1"),
        ({"privacy-unit": "hospital"}, "needs daisy-period = 0"),
        ({"model": "mri-cnn", "model-options": "{}"}, "BatchNorm2d, which mixes patients"),
    ],
)
def test_settings_under_which_the_noise_would_not_protect_are_refused(
    changed: dict[str, object], message: str
) -> None:
    values = CASES["patient, cancelled noise"] | changed
    with pytest.raises((PrivacyError, SettingsError), match=message):
        run(settings(**values))


def test_a_target_is_turned_into_noise_and_never_trained_without() -> None:
    private = {"privacy-unit": "patient", "daisy-period": 0, "aggregation-period": 1}
    chosen = settings(**private | {"target-epsilon": 3.0, "average-noise-multiplier": 1.0})
    noise = with_computed_noise(chosen).training.average_noise_multiplier
    assert run_epsilon(chosen) == pytest.approx(3.0, rel=1e-3)
    same = settings(**private | {"average-noise-multiplier": noise})
    torch.testing.assert_close(trained(chosen, "batched"), trained(same, "batched"))
    shared = {"target-epsilon": 3.0, "average-noise-multiplier": 1.0, "privacy-unit": "hospital"}
    with pytest.raises(PrivacyError, match="target-epsilon can't compute noise"):
        run(settings(**private | shared))
