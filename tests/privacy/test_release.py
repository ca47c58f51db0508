"""Private rounds, averages and updates against formulas on plain tensors."""

import math

import numpy as np
import pytest
import torch

from learning.data import Examples
from learning.privacy import (
    NoiseSource,
    PatientGradients,
    Patients,
    PrivacyError,
    average_sensitivity,
    check_settings,
    clip_update,
    member_deviation,
    private_step,
    released_average,
    released_update,
    sampling_rate,
)
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec, optimizer_spec

KEY = bytes(32)


def settings(**changed: object) -> TrainingSettings:
    values = {
        "model": "linear",
        "privacy-unit": "patient",
        "clip-norm": 0.5,
        "noise-multiplier": 2.0,
        "nominal-patients": 8,
        "learning-rate": 0.4,
    }
    named = {key.replace("_", "-"): value for key, value in changed.items()}
    return TrainingSettings.parse(values | named, source="test")


def prepared(training: TrainingSettings) -> tuple[Network, PatientGradients, Patients]:
    network = Network(training, TaskSpec((5,), 3), seed=1)
    rng = np.random.default_rng(0)
    data = Examples(rng.normal(size=(6, 5)).astype(np.float32), rng.integers(0, 3, 6))
    return network, PatientGradients(network), Patients.of(network, data)


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten().double() for tensor in tensors.values()])


def test_a_private_step_is_sgd_on_the_noised_sum_over_the_nominal_size() -> None:
    network, gradients, patients = prepared(settings())
    before = flat(network.parameters)
    clean = flat(gradients.clipped_sum(patients, 0.5).gradients)
    noise = flat(NoiseSource(KEY).stream("round", 3).normal_like(network.parameters))
    step = private_step(
        gradients,
        optimizer_spec(network.settings),
        3,
        patients,
        {},
        noise=NoiseSource(KEY).stream("round", 3),
    )
    after = flat(network.parameters)
    # Up to the rounding to 2⁻¹⁰ of the deviation z·C = 1.
    torch.testing.assert_close(after, before - 0.4 * (clean + noise) / 8, rtol=0, atol=5e-5)
    torch.testing.assert_close(
        after - flat(step.injected), before - 0.4 * clean / 8, rtol=0, atol=1e-6
    )


def test_cancelled_noise_leaves_the_model_of_training_without_noise() -> None:
    """The rounds of a chain at other hospitals are fixed models here; this hospital cancels its."""
    training = settings()
    network, gradients, patients = prepared(training)
    spec, source = optimizer_spec(training), NoiseSource(KEY)
    received = [
        {name: torch.randn_like(p) * 0.1 for name, p in network.parameters.items()}
        for _ in range(3)
    ]
    carried: dict[str, torch.Tensor] = {}
    total = torch.zeros_like(flat(network.parameters))
    for round_, model in enumerate(received):
        with torch.no_grad():
            for name, parameter in network.parameters.items():
                parameter.copy_(model[name])
        clean = flat(gradients.clipped_sum(patients, 0.5).gradients)
        last = round_ == 2
        noise = None if last else source.stream("round", round_)
        step = private_step(gradients, spec, round_, patients, {}, noise=noise)
        for name, value in step.injected.items():
            carried[name] = carried.get(name, 0) + value
        total += 0.4 * clean / 8
        if not last:
            total -= flat(model) - flat(network.parameters)  # what the others received instead
    sent = released_average(network.parameters, carried, 0.0, None)
    wanted = flat(received[2]) - total
    torch.testing.assert_close(flat(sent), wanted, rtol=0, atol=1e-5)
    fresh = source.stream("average", 1).normal_like(network.parameters)
    noisy = released_average(network.parameters, carried, 0.25, fresh)
    torch.testing.assert_close(flat(noisy), wanted + 0.25 * flat(fresh), rtol=0, atol=2e-4)


def test_one_patient_changes_the_sum_of_an_average_by_no_more_than_its_sensitivity() -> None:
    training = settings(learning_rate=0.4, decay_every=2, decay_factor=0.5)
    assert average_sensitivity(training, range(3)) == pytest.approx((0.4 + 0.4 + 0.2) * 0.5 / 8)
    # 18 of 50 members suffice: their noises together have the deviation of the whole.
    assert math.sqrt(18) * member_deviation(3.0, 0.1, honest=18) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="honest must be at least 1"):
        member_deviation(1.0, 1.0, honest=0)


def test_a_hospitals_update_is_clipped_to_its_norm_then_noised() -> None:
    before = {"w": torch.zeros(3), "b": torch.ones(1)}
    after = {"w": torch.tensor([3.0, 0.0, 0.0]), "b": torch.tensor([5.0])}  # norm 5
    clipped = clip_update(before, after, 2.5)
    assert flat(clipped).tolist() == pytest.approx([1.5, 0, 0, 2])
    assert flat(clip_update(before, after, 10.0)).tolist() == [3, 0, 0, 4]
    noise = NoiseSource(KEY).stream("leg", 1).normal_like(before)
    released = released_update(before, after, 2.5, 0.5, noise)
    torch.testing.assert_close(
        flat(released), flat(before) + flat(clipped) + 0.5 * flat(noise), rtol=0, atol=5e-4
    )
    after["b"][0] = float("nan")
    assert not flat(clip_update(before, after, 2.5)).any()


def test_poisson_batches_are_drawn_from_the_secret_stream_at_the_nominal_rate() -> None:
    training = settings(batch_size=2)
    assert sampling_rate(training) == 0.25
    network, gradients, patients = prepared(training)
    spec = optimizer_spec(training)
    with pytest.raises(ValueError, match="needs a secret stream"):
        private_step(gradients, spec, 0, patients, {}, noise=None)
    before = flat(network.parameters)
    stream = NoiseSource(KEY).stream("batch", 1)
    chosen = (NoiseSource(KEY).stream("batch", 1).uniform(6) <= 0.25).numpy()
    clean = flat(gradients.clipped_sum(patients.take(chosen), 0.5).gradients)
    private_step(gradients, spec, 0, patients, {}, noise=None, batch=stream)
    torch.testing.assert_close(
        flat(network.parameters), before - 0.4 * clean / 2, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"privacy_unit": "none"}, "have no effect with privacy-unit = none"),
        ({"nominal_patients": 0}, "needs nominal-patients"),
        ({"batch_size": 9}, "is more than nominal-patients = 8"),
        ({"privacy_unit": "hospital", "momentum": 0.9}, "momentum = 0"),
        ({"privacy_unit": "hospital", "optimizer": "adam"}, "optimizer = sgd"),
        ({"average_noise_multiplier": 1.0, "weight_decay": 0.1}, "needs weight-decay = 0"),
        ({"average_noise_multiplier": 1.0, "optimizer": "adam"}, "needs optimizer = sgd"),
        ({"average_noise_multiplier": 1.0, "batch_size": 2}, "needs batch-size = 0"),
    ],
)
def test_settings_the_mechanism_is_not_sound_with_are_refused(
    changed: dict[str, object], message: str
) -> None:
    with pytest.raises(PrivacyError, match=message):
        check_settings(settings(**changed))
