"""The first model of an experiment: another experiment's last aggregate, or a file's.

This continues a study whose journal is lost, and starts from a pretrained model.
"""

from pathlib import Path

from operation.config import SettingsError
from protocol.model_bytes import ModelBytesError, ModelState
from protocol.model_file import from_model_file
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
        return from_model_file(path.read_bytes(), like)
    except ModelBytesError as error:
        raise SettingsError(f"{path.name} {error}") from error
