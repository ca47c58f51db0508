"""ONNX files: the same probabilities and classes as PyTorch, for every model of the registry."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from learning.data import DataOptions, load
from learning.export import onnx_file
from learning.export.onnx_file import ExportError, to_onnx
from learning.models import names, plug_ins
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
SHAPES = {"linear": (13,), "mlp": (13,), "mnist-cnn": (1, 28, 28)}
REGISTERED = [name for name in names() if name not in plug_ins.installed()]


def network(model: str, shape: tuple[int, ...] | None = None, **settings: object) -> Network:
    chosen = TrainingSettings.parse({"model": model, **settings}, source="test")
    return Network(chosen, TaskSpec(shape or SHAPES.get(model, (1, 64, 64)), 3), seed=4)


def run(data: bytes, features: np.ndarray) -> np.ndarray:
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (found,) = session.run(["probabilities"], {"features": features})
    return np.asarray(found)


def assert_same(data: bytes, trained: Network, features: np.ndarray) -> None:
    found, expected = run(data, features), trained.probabilities(features)
    assert np.abs(found - expected).max() <= 1e-5
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("model", REGISTERED)
def test_every_model_is_the_same_in_onnxruntime(model: str) -> None:
    shape = (1, 8, 32, 32) if "3d" in model else None
    trained = network(model, shape)
    data = to_onnx(trained, {})
    features = np.random.default_rng(1).normal(size=(33, *trained.task.shape)).astype(np.float32)
    assert_same(data, trained, features)


@pytest.mark.slow
@pytest.mark.parametrize("model", REGISTERED)
def test_real_x_rays_get_the_same_probabilities_and_classes(model: str) -> None:
    folder = Path(os.environ.get("FEDDC_DATA", "")) / "chest_xray"
    if not os.environ.get("FEDDC_DATA") or not folder.is_dir():
        pytest.skip("needs FEDDC_DATA with chest_xray")
    side = {"mnist-cnn": 28, "cnn-3d": 32}.get(model, 64)
    test = load("chest-xray", folder=folder, seed=0, options=DataOptions(image_size=side)).test
    features = test.features
    if model == "cnn-3d":  # volumes of eight images each
        features = features[: len(features) // 8 * 8].reshape(-1, 1, 8, side, side)
    chosen = TrainingSettings.parse({"model": model}, source="test")
    trained = Network(chosen, TaskSpec(features.shape[1:], 2), seed=4)
    assert_same(to_onnx(trained, {}, features), trained, features)


@pytest.mark.slow
def test_metadata_and_names_are_in_the_file_and_hinge_has_two_probabilities() -> None:
    settings = {"loss": "hinge", "model-options": '{"outputs": 1}', "precision": "float64"}
    chosen = TrainingSettings.parse({"model": "linear", **settings}, source="test")
    trained = Network(chosen, TaskSpec((4,), 2), seed=1)
    data = to_onnx(trained, {"classes": json.dumps(["no", "yes"])})
    proto = onnx.load_from_string(data)
    assert {entry.key: entry.value for entry in proto.metadata_props}["classes"] == '["no", "yes"]'
    features = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_allclose(run(data, features), trained.probabilities(features), atol=1e-6)


@pytest.mark.slow
def test_a_file_that_computes_something_else_is_not_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained = network("linear")
    honest = trained.probabilities
    monkeypatch.setattr(trained, "probabilities", lambda features: honest(features * 1.001))
    with pytest.raises(ExportError, match=r"differ from PyTorch's by .*nothing was written"):
        to_onnx(trained, {})


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ExportError, match=r"onnxruntime.*pip install '\.\[export\]'"):
        onnx_file.to_onnx(network("linear"), {})
