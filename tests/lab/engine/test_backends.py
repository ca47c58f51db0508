"""The fastest backend is found by measuring, and can be requested by name."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from lab.engine import Backend, run
from lab.engine.backends.batched import Batched
from lab.engine.backends.looped import Looped
from learning.models import registry
from learning.models.interface import Model
from server_app.config.run_config import Settings
from tests.conftest import TINY

QUICK = TINY | {"sealed": False, "held-out": 0}


def test_the_way_that_was_found_gives_the_same_model_when_it_is_named() -> None:
    settings = Settings.from_run_config(
        QUICK | {"model": "mnist-cnn", "model-options": '{"filters": [2, 3]}', "dataset": "digits"},
        source="test",
    )
    found = run(settings, backend="auto")
    named = run(settings, backend=found.backend)
    assert named.backend == found.backend
    assert named.model.to_bytes() == found.model.to_bytes()


@pytest.mark.parametrize(("backend", "threads"), [("batched", 1), ("loop", 2)])
def test_batched_operations_are_too_short_for_several_threads(
    backend: Backend, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[int] = set()
    before = torch.get_num_threads()

    def step_seen(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            used.add(torch.get_num_threads())
            return original(*arguments)

        return step

    monkeypatch.setattr(Batched, "_step", step_seen(Batched._step))
    monkeypatch.setattr(Looped, "_train", step_seen(Looped._train))
    settings = Settings.from_run_config(QUICK | {"threads": 2}, source="test")
    run(settings, backend=backend, workers=1)
    assert used == {threads}
    assert torch.get_num_threads() == before


class _Particular(nn.Module):
    """Takes images in the usual order in memory only, and has no stacked form."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.output = nn.Linear(int(np.prod(shape)), classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.output(images.view(len(images), -1))


def test_a_way_that_the_network_cannot_go_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        registry._BUILT_IN, "particular", Model("particular", (), partial(_Particular))
    )
    colours = np.random.default_rng(0).integers(0, 256, size=(2, 40, 6, 6, 3), dtype=np.uint8)
    for label, images in enumerate(colours):
        (tmp_path / str(label)).mkdir()
        for number, image in enumerate(images):
            Image.fromarray(image).save(tmp_path / str(label) / f"{number}.png")
    values = {"dataset": "image-folder", "data-dir": str(tmp_path), "image-mode": "rgb"}
    settings = Settings.from_run_config(
        QUICK | values | {"model": "particular", "model-options": "{}"}, source="test"
    )
    with pytest.raises(RuntimeError, match="view"):
        run(settings, backend="loop-channels-last")
    assert run(settings, backend="auto").backend == "loop"
