"""MONAI's networks are built by name, from a closed list, for slices and volumes."""

import sys

import pytest
import torch

from learning.models import ModelError, build
from learning.models.monai_networks import names


def test_only_networks_of_the_list_can_be_named() -> None:
    for name in ("monai:eval", "monai:", "monai:DenseNet264"):
        with pytest.raises(ModelError, match="model must be one of"):
            build(name, shape=(1, 32, 32), classes=2, options={}, seed=0)


def test_without_the_extra_its_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "monai.networks", None)
    with pytest.raises(ModelError, match=r"pip install '\.\[monai\]'"):
        build("monai:densenet121", shape=(1, 32, 32), classes=2, options={}, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 33, 40), (1, 32, 32, 32)])
@pytest.mark.parametrize("name", names())
def test_one_score_per_class_from_the_seed_alone(name: str, shape: tuple[int, ...]) -> None:
    pytest.importorskip("monai", reason="needs the extra monai")
    first, again = (
        build(name, shape=shape, classes=3, options={}, seed=1).eval() for _ in range(2)
    )
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        scores = first(images)
        assert scores.shape == (2, 3)
        assert torch.equal(scores, again(images))
    with pytest.raises(ModelError, match="at least 32 pixels a side"):
        build(name, shape=(1, 16, 64), classes=3, options={}, seed=1)
