"""`device = "auto"` takes the best device there is; one that is not there is refused."""

import pytest
import torch

from learning.device import find_device
from learning.models import ModelError
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec


def there(monkeypatch: pytest.MonkeyPatch, *, cuda: bool, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "settings", "expected"),
    [
        (True, True, {}, "cuda"),
        (True, False, {}, "cuda"),
        (False, True, {}, "mps"),
        (False, False, {}, "cpu"),
        (False, True, {"precision": "float64"}, "cpu"),  # MPS has no 64-bit numbers
        (False, True, {"privacy_unit": "patient"}, "cpu"),
        (True, True, {"precision": "float64"}, "cuda"),
    ],
)
def test_auto_takes_the_best_device_for_these_settings(
    cuda: bool,
    mps: bool,
    settings: dict[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there(monkeypatch, cuda=cuda, mps=mps)
    training = TrainingSettings().model_copy(update=settings)
    assert find_device("auto", training).type == expected


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, cuda=False, mps=False)
    with pytest.raises(ModelError, match=f"device = {name}, but .*use cpu, or auto"):
        find_device(name, TrainingSettings())


def test_mps_refuses_what_needs_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    there(monkeypatch, cuda=False, mps=True)
    training = TrainingSettings().model_copy(update={"precision": "float64"})
    with pytest.raises(ModelError, match="precision = float64"):
        find_device("mps", training)


def test_a_network_with_auto_trains_on_the_cpu_where_there_is_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there(monkeypatch, cuda=False, mps=False)
    network = Network(TrainingSettings(), TaskSpec((4,), 2), seed=0, device="auto")
    assert {parameter.device.type for parameter in network.parameters.values()} == {"cpu"}
