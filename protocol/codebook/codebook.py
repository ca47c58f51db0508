"""The codebook of a study: classes, and the columns of a table or the form of images."""

import hashlib
import tomllib
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from protocol.canonical import canonical_json, problems, read_canonical
from protocol.sealing.keys import SIGNATURE_BYTES, Identity, verify
from protocol.study.roster import fingerprint

from .columns import Column, Markers, level_key
from .images import Images
from .parts import Line, Part, Text, check_distinct, name_key

_PURPOSE = "codebook"
MAX_BYTES = 16 * 1024 * 1024
_MOST_COLUMNS = 50_000  # gene expression has tens of thousands
_MOST_FEATURES = 500_000
_MOST_CLASSES = 1_000
# What empty cells are filled with in practice. A level of a column is never missing.
USUAL_MARKERS = (
    "?", "-", "--", ".", "NA", "N/A", "#N/A", "NaN", "NULL", "None", "n.d.", "missing", "unknown",
    "k.A.", "k. A.", "kA", "keine Angabe", "unbekannt",
)  # fmt: skip


class CodebookError(ValueError):
    """The text or bytes are not a valid codebook; the message lists every problem."""


class Codebook(Part):
    """What an example is: the same at every hospital, in training and in prediction.

    `classes` are in the order of the model's outputs. `label` is the column with the class. An
    example is a row of a table with `columns`, or an image as `images` describes it.
    """

    version: Literal[1] = 1
    title: Line = ""
    classes: Annotated[
        tuple[Text, ...], Field(min_length=2, max_length=_MOST_CLASSES, strict=False)
    ]
    label: Text = "label"
    missing: Markers = USUAL_MARKERS
    columns: Annotated[tuple[Column, ...], Field(max_length=_MOST_COLUMNS, strict=False)] = ()
    images: Images | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> "Codebook":
        if bool(self.columns) == (self.images is not None):
            raise ValueError("an example is a row of [[columns]] or one of [images], not both")
        check_distinct("classes", list(map(level_key, self.classes)))
        names = [column.name for column in self.columns]
        check_distinct("columns", list(map(name_key, [self.label, *names])))
        if len(self.features) > _MOST_FEATURES:
            raise ValueError(f"{len(self.features)} features are more than {_MOST_FEATURES}")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example's features."""
        return self.images.shape if self.images else (len(self.features),)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The names of a row's features, in order; none for images."""
        return tuple(name for column in self.columns for name in column.features)

    @cached_property
    def content(self) -> bytes:
        """The codebook in canonical form, which is signed, fingerprinted and pinned."""
        return canonical_json(self)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.content).digest()

    @property
    def fingerprint(self) -> str:
        """160 bits of the digest in eight groups, like a roster's."""
        return fingerprint(self.content)

    def signed(self, coordinator: Identity) -> bytes:
        """Return the codebook as the coordinator distributes it: content, then signature."""
        return self.content + coordinator.sign(_PURPOSE, self.content)

    @staticmethod
    def from_signed(data: bytes, coordinator: bytes) -> "Codebook":
        """Parse a codebook and verify the coordinator's signature."""
        content, signature = data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        if not verify(coordinator, _PURPOSE, content, signature):
            raise CodebookError(
                "not signed by the study's coordinator, or changed after it was signed"
            )
        return Codebook.from_content(content)

    @staticmethod
    def from_content(content: bytes) -> "Codebook":
        """Parse the canonical form."""
        if len(content) > MAX_BYTES:
            raise CodebookError(f"a codebook has at most {MAX_BYTES} bytes, got {len(content)}")
        try:
            return read_canonical(_CODEBOOK, content)
        except ValueError as error:
            raise CodebookError(f"not a codebook: {error}") from error

    @staticmethod
    def from_toml(text: str) -> "Codebook":
        """Parse codebook.toml, as people write it."""
        try:
            codebook = Codebook.model_validate(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise CodebookError(f"not TOML: {error}") from error
        except RecursionError as error:
            raise CodebookError("not TOML: nested too deeply") from error
        except ValidationError as error:
            raise CodebookError("; ".join(problems(error))) from error
        return Codebook.from_content(codebook.content)  # what can't be distributed is refused now


_CODEBOOK = TypeAdapter(Codebook)
