"""`models/<experiment>/` in the hospital's folder: the final model, with all that explains it.

The files are written before the experiment's keys are destroyed. A model without its descriptor
and codebook would be useless: it could be loaded into another network, or fed with another scale.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client_app.hospital_folder import FolderError
from operation import files
from protocol.codebook import Codebook, CodebookError
from protocol.descriptor import Descriptor, DescriptorError
from protocol.model_bytes import ModelState
from protocol.model_file import metadata_of, to_model_file

MODEL, FIRST_MODEL = "model.safetensors", "first-model.safetensors"
DESCRIPTOR, CODEBOOK = "descriptor.json", "codebook.json"
EVALUATION, EVALUATION_TEXT = "evaluation.json", "evaluation.txt"
_DIGEST = "descriptor"  # in the model's metadata
PENDING = "not trained yet"  # in an evaluation: the model alone


@dataclass(frozen=True)
class FinalModels:
    """The folder `models/` of a hospital, and the codebook that its models are trained with."""

    path: Path
    codebook: Codebook | None = None
    on_kept: Callable[[], None] = lambda: None

    def keep(
        self, descriptor: Descriptor, model: ModelState, first: ModelState | None
    ) -> "ModelFolder":
        """Write the final model of an experiment durably; DiskFull says what did not fit.

        `first` is the model that training began with, if the coordinator gave one.
        """
        folder = ModelFolder(self.path / descriptor.experiment)
        described = descriptor.to_bytes()
        metadata = {
            "experiment": descriptor.experiment,
            _DIGEST: hashlib.sha256(described).hexdigest(),
        }
        contents = {DESCRIPTOR: described}
        # Another one may have been pinned since the experiment began.
        if self.codebook is not None and self.codebook.digest == descriptor.codebook:
            contents[CODEBOOK] = self.codebook.content
        if first is not None:
            contents[FIRST_MODEL] = to_model_file(first)
        contents[MODEL] = to_model_file(model, metadata)  # last: it marks the folder as complete
        folder.write(contents)
        for parent in (self.path, self.path.parent):
            files.sync_folder(parent)
        self.on_kept()
        return folder

    def folders(self) -> Iterator["ModelFolder"]:
        """Return the folders of all models, oldest experiment first."""
        for path in sorted(self.path.iterdir()) if self.path.is_dir() else ():
            if (path / MODEL).is_file():
                yield ModelFolder(path)

    def find(self, given: str) -> "ModelFolder":
        """Return the folder that an experiment's id or a path names."""
        for path in (self.path / given, Path(given)):
            if (path / MODEL).is_file():
                return ModelFolder(path)
        known = ", ".join(folder.path.name for folder in self.folders()) or "none yet"
        raise FolderError(
            f"{given}: neither a model in {self.path} ({known}) nor a folder with {MODEL}; a model "
            "is written when its experiment closes"
        )


@dataclass(frozen=True)
class ModelFolder:
    """The files of one model."""

    path: Path

    def write(self, contents: dict[str, bytes]) -> None:
        """Write files durably, each in place of an earlier one."""
        # The modes of existing folders are the operator's: he may share a model.
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in contents.items():
            files.replace(self.path / name, content, mode=0o600)

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """The saved evaluation; None before the first."""
        try:
            found: dict[str, Any] = json.loads((self.path / EVALUATION).read_bytes())
            return found
        except (FileNotFoundError, ValueError):  # written whole or not at all, but perhaps edited
            return None

    @property
    def is_evaluated(self) -> bool:
        """Whether both models have been evaluated, as far as that is possible."""
        evaluation = self.evaluation
        return evaluation is not None and evaluation.get("alone_missing") != PENDING

    def descriptor(self) -> Descriptor:
        """Return the descriptor, if it is the model's."""
        data = self._read(DESCRIPTOR)
        given = metadata_of(self._read(MODEL)).get(_DIGEST)
        if given != hashlib.sha256(data).hexdigest():
            raise FolderError(
                f"{self.path}: {DESCRIPTOR} is not that of {MODEL}; restore the folder as it was "
                "written"
            )
        try:
            return Descriptor.from_bytes(data)
        except DescriptorError as error:
            raise FolderError(f"{self.path / DESCRIPTOR}: {error}") from error

    def codebook(self, descriptor: Descriptor) -> Codebook | None:
        """Return the codebook that the model was trained with, or None if there was none."""
        digest = descriptor.codebook
        if digest is None:
            return None
        try:
            found = Codebook.from_content(self._read(CODEBOOK))
        except CodebookError as error:
            raise FolderError(f"{self.path / CODEBOOK}: {error}") from error
        if found.digest != digest:
            raise FolderError(
                f"{self.path / CODEBOOK} has the digest {found.digest.hex()}, but the model was "
                f"trained with the codebook {digest.hex()}: restore the folder as it was written"
            )
        return found

    def model_bytes(self) -> bytes:
        return self._read(MODEL)

    def first_model_bytes(self) -> bytes | None:
        """The model that training began with, if the coordinator gave one."""
        path = self.path / FIRST_MODEL
        return path.read_bytes() if path.is_file() else None

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError as error:
            raise FolderError(
                f"{self.path / name} is missing: restore the folder as it was written"
            ) from error
