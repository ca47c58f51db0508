"""The task of a real study: the coordinator does not see the hospitals' data."""

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from operation.config import Scalar, SettingsGroup


class TaskSettings(SettingsGroup):
    """The shape of an example, the number of classes, and the coordinator's test data, if any."""

    input_shape: str = Field(
        "", description="shape of an example, 30 or 1x28x28; empty: that of the test data"
    )
    classes: int = Field(0, ge=0, description="number of classes; 0: that of the test data")
    test_data: str = Field("", description="name of the coordinator's own data set; empty: none")
    test_data_dir: str = Field(
        "",
        description="folder or file of that data set, relative to this file; its test part is used",
    )
    test_label_column: str = Field("label", description="column with the class (csv)")

    @field_validator("input_shape", mode="before")
    @classmethod
    def _may_be_a_number(cls, value: object) -> object:
        return str(value) if type(value) is int else value

    @field_validator("input_shape")
    @classmethod
    def _is_a_shape(cls, text: str) -> str:
        if text and not re.fullmatch(r"[1-9][0-9]{0,6}(x[1-9][0-9]{0,6}){0,3}", text):
            raise ValueError(f"must be whole numbers with x between them, like 1x28x28, got {text}")
        return text

    @model_validator(mode="after")
    def _is_known(self) -> "TaskSettings":
        if not self.test_data and not (self.input_shape and self.classes >= 2):
            raise ValueError("set input-shape and classes (2 or more), or test-data")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(size) for size in self.input_shape.split("x")) if self.input_shape else ()


def located(values: Mapping[str, Scalar], folder: Path) -> dict[str, Scalar]:
    """Return settings with the test data's path made absolute: a run has another current folder."""
    given = values.get("test-data-dir")
    if not given or not isinstance(given, str):
        return dict(values)
    return {**values, "test-data-dir": str(folder / Path(given).expanduser())}
