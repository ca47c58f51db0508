"""The first model of an experiment: another experiment's last aggregate, or a file's.

This continues a study whose journal is lost, and starts from a pretrained model.
"""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from operation.config import SettingsError
from protocol.model_bytes import ModelState
from server_app.study.study_folder import Study

GIVEN = "first.safetensors"  # in an experiment's folder: its first model
AGGREGATE = "aggregate.safetensors"  # its last aggregate, while it runs
FINAL = "model.safetensors"


def find(study: Study, given: str) -> Path:
    """Return the file of the model that an experiment's id or a path names."""
    folder = study.experiments / given
    if Path(given).name == given and (folder / "settings.json").is_file():
        for name in (FINAL, AGGREGATE):
            if (folder / name).is_file():
                return folder / name
        raise SettingsError(f"--from {given}: that experiment has no aggregate yet")
    if not Path(given).is_file():
        raise SettingsError(
            f"--from {given}: neither an experiment in {study.experiments} nor a file"
        )
    return Path(given)


def read(path: Path, like: ModelState) -> ModelState:
    """Return a file's model, whose names, shapes and types must be those of the network."""
    try:
        arrays = load(path.read_bytes())
    except SafetensorError as error:
        raise SettingsError(f"{path.name} is not a safetensors file: {error}") from error
    wanted = like.parameters | like.buffers
    for what, names in (
        ("lacks", wanted.keys() - arrays.keys()),
        ("has, unlike the study's network,", arrays.keys() - wanted.keys()),
    ):
        if names:
            raise SettingsError(f"{path.name} {what} {', '.join(sorted(names)[:3])}")
    for name, array in wanted.items():
        found = arrays[name]
        if (found.shape, found.dtype) != (array.shape, array.dtype):
            raise SettingsError(
                f"{path.name}: {name} is {found.dtype} {found.shape}, but in the study's network "
                f"{array.dtype} {array.shape}"
            )
        if not np.isfinite(found).all():
            raise SettingsError(f"{path.name}: {name} has values that are not finite")
    return ModelState(
        {name: arrays[name] for name in like.parameters},
        {name: arrays[name] for name in like.buffers},
    )
