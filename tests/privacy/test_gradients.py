"""Clipped gradients against a plain loop over patients, and against a case by hand."""

import numpy as np
import pytest
import torch

from learning.data import Examples
from learning.losses import loss_of
from learning.privacy import PatientGradients, Patients, PrivacyError
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec


def network(
    model: str, shape: tuple[int, ...], *, options: str = "{}", loss: str = "cross-entropy"
) -> Network:
    settings = TrainingSettings.parse(
        {"model": model, "model-options": options, "loss": loss}, source="test"
    )
    return Network(settings, TaskSpec(shape, 2 if loss == "hinge" else 3), seed=3)


def examples(shape: tuple[int, ...], count: int, groups: list[int] | None = None) -> Examples:
    rng = np.random.default_rng(4)
    return Examples(
        rng.normal(size=(count, *shape)).astype(np.float32),
        rng.integers(0, 2, count),
        None if groups is None else np.array(groups),
    )


def loop(net: Network, data: Examples, clip: float) -> tuple[list[float], torch.Tensor]:
    """Sum over patients of the clipped gradient of the sum over the patient's examples."""
    groups = np.arange(len(data)) if data.groups is None else data.groups
    norms, total = [], torch.zeros(sum(p.numel() for p in net.parameters.values()))
    for group in np.unique(groups):
        gradient = torch.zeros_like(total)
        for row in np.flatnonzero(groups == group):
            features, labels = net.tensors(data.take([row]))
            loss = loss_of(net.settings.loss, net.module(features), labels)
            parts = torch.autograd.grad(loss, list(net.parameters.values()))
            gradient += torch.cat([part.flatten() for part in parts])
        norms.append(float(gradient.double().norm()))
        total += gradient * min(1.0, clip / norms[-1])
    return norms, total


def flat(gradients: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients.values()])


@pytest.mark.parametrize("groups", [None, [0, 1, 1, 2, 0, 1, 3, 3, 3, 4]])
@pytest.mark.parametrize(
    ("model", "shape"), [("mlp", (6,)), ("mnist-cnn", (1, 8, 8)), ("linear", (5,))]
)
def test_clipped_sum_is_that_of_a_loop_over_patients(
    model: str, shape: tuple[int, ...], groups: list[int] | None
) -> None:
    net, data = network(model, shape), examples(shape, 10, groups)
    clip = float(np.median(loop(net, data, 1.0)[0]))  # some are clipped, some are not
    norms, total = loop(net, data, clip)
    got = PatientGradients(net).clipped_sum(Patients.of(net, data), clip)
    torch.testing.assert_close(flat(got.gradients), total, rtol=1e-4, atol=1e-5)
    assert got.norms.tolist() == pytest.approx(norms, rel=1e-5)


@pytest.mark.parametrize("clip", [1e-3, 0.1, 1.0])
def test_no_patient_contributes_more_than_the_clip_norm(clip: float) -> None:
    """One patient's contribution is the difference of the sums with and without that patient."""
    net = network("mnist-cnn", (1, 8, 8))
    data = examples((1, 8, 8), 9, [0, 0, 0, 0, 1, 2, 2, 3, 3])
    everyone = Patients.of(net, data)
    for patient in range(4):
        alone = everyone.take(np.arange(4) == patient)
        contribution = PatientGradients(net).clipped_sum(alone, clip)
        assert float(flat(contribution.gradients).double().norm()) <= clip * (1 + 1e-6)
    assert float(contribution.norms[0]) > 0.1


def test_a_gradient_worked_out_by_hand() -> None:
    # One output w·x + b with hinge loss: the gradient is −y·(x, 1) inside the margin, 0 outside.
    net = network("linear", (2,), options='{"outputs": 1}', loss="hinge")
    with torch.no_grad():
        for parameter in net.parameters.values():
            parameter.zero_()
    data = Examples(
        np.array([[3.0, 0.0], [0.0, 4.0], [2.0, 2.0]], dtype=np.float32),
        np.array([1, 0, 1]),
        np.array([7, 7, 8]),
    )
    got = PatientGradients(net).clipped_sum(Patients.of(net, data), 2.5)
    # Patient 7: −(3, 0, 1) + (0, 4, 1) = (−3, 4, 0), norm 5, halved. Patient 8: −(2, 2, 1), norm 3.
    wanted = [-1.5 - 2 * 2.5 / 3, 2 - 2 * 2.5 / 3, -2.5 / 3]
    assert flat(got.gradients).tolist() == pytest.approx(wanted, rel=1e-5)
    assert got.norms.tolist() == pytest.approx([5, 3])


def test_a_gradient_that_is_not_finite_counts_as_zero() -> None:
    net, data = network("mlp", (6,)), examples((6,), 4)
    wanted = loop(net, data.take([0, 1, 3]), 0.5)[1]
    data.features[2, 0] = np.inf
    got = PatientGradients(net).clipped_sum(Patients.of(net, data), 0.5)
    torch.testing.assert_close(flat(got.gradients), wanted, rtol=1e-4, atol=1e-5)


def test_passes_of_few_patients_give_the_same_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = network("mlp", (6,)), examples((6,), 11, [0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5])
    whole = PatientGradients(net).clipped_sum(Patients.of(net, data), 0.5)
    monkeypatch.setattr("learning.privacy.gradients._NUMBERS_AT_ONCE", 20_000)
    monkeypatch.setattr("learning.privacy.gradients._IMAGES_AT_ONCE", 2)
    parts = PatientGradients(net).clipped_sum(Patients.of(net, data), 0.5)
    torch.testing.assert_close(flat(parts.gradients), flat(whole.gradients), rtol=1e-4, atol=1e-6)


def test_a_hospital_without_patients_contributes_zero() -> None:
    net = network("mlp", (6,))
    nobody = Patients.of(net, examples((6,), 3)).take(np.zeros(3, dtype=bool))
    assert not flat(PatientGradients(net).clipped_sum(nobody, 1.0).gradients).any()


@pytest.mark.parametrize("model", ["mri-cnn", "resnet-small", "resnet18"])
def test_batch_norm_is_refused_with_the_way_out(model: str) -> None:
    with pytest.raises(PrivacyError, match=r'BatchNorm2d.*\{"norm": "group"\}'):
        PatientGradients(network(model, (3, 32, 32)))
