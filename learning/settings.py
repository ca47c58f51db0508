"""Settings of training and of a hospital's own data, checked once and typed ever after.

Keys are written with hyphens, as in `[tool.flwr.app.config]`.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

Scalar = bool | int | float | str
_S = TypeVar("_S", bound="SettingsGroup")


class SettingsError(ValueError):
    """A setting is unknown or impossible; the message names its key, value and source."""


class SettingsGroup(BaseModel):
    """A group of settings: unknown keys and impossible values are refused by name."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        populate_by_name=False,
        alias_generator=lambda name: name.replace("_", "-"),
    )

    @classmethod
    def key_names(cls) -> tuple[str, ...]:
        return tuple(str(field.alias) for field in cls.model_fields.values())

    @classmethod
    def parse(cls: type[_S], values: Mapping[str, Any], *, source: str) -> _S:
        """Check `values`; `source` is named in the message so that the user finds the place."""
        floats = {
            str(field.alias) for field in cls.model_fields.values() if field.annotation is float
        }
        widened = {
            # TOML and command lines write 1 where 1.0 is meant.
            key: float(value) if key in floats and _fits_a_float(value) else value
            for key, value in values.items()
        }
        try:
            return cls.model_validate(widened)
        except ValidationError as error:
            raise SettingsError(f"{describe(error)} ({source})") from error

    def as_config(self) -> dict[str, Scalar]:
        """Return the settings as flat key-value pairs, the form Flower carries."""
        return self.model_dump(by_alias=True)


def _fits_a_float(value: object) -> bool:
    return type(value) is int and abs(value) <= sys.float_info.max


def describe(error: ValidationError) -> str:
    """Say in one line what the first problem is, beginning with the setting's key."""
    problem = error.errors(include_url=False)[0]
    key = str(problem["loc"][0]) if problem["loc"] else ""
    value = problem["input"]
    context = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            return f"{key} is not a setting"
        case "missing":
            return f"{key} is missing"
        case "greater_than_equal":
            rule = f"must be at least {context['ge']}"
        case "greater_than":
            rule = f"must be more than {context['gt']}"
        case "less_than_equal":
            rule = f"must be at most {context['le']}"
        case "less_than":
            rule = f"must be less than {context['lt']}"
        case "literal_error":
            rule = f"must be one of {context['expected']}"
        case "int_type" | "int_from_float" | "int_parsing":
            rule = "must be a whole number"
        case "float_type" | "float_parsing" | "finite_number":
            rule = "must be a finite number"
        case "bool_type":
            rule = "must be true or false"
        case "string_type":
            rule = "must be text"
        case "value_error":
            return f"{key} {context['error']}" if key else str(context["error"])
        case _:
            rule = problem["msg"]
    return f"{key} {rule}, got {value!r}"


class TrainingSettings(SettingsGroup):
    """How every model of an experiment is trained: part of the descriptor."""

    model: str = Field("mlp", description="the network, by its name in the registry")
    model_options: str = Field("{}", description="its hyper-parameters, a JSON object")
    loss: Literal["cross-entropy", "hinge"] = Field(
        "cross-entropy", description="what is minimised; hinge: two classes, one output"
    )
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="the update rule")
    optimizer_state: Literal["reset", "kept"] = Field(
        "reset", description="what an aggregation does to the optimiser's state"
    )
    learning_rate: float = Field(
        0.1, gt=0, allow_inf_nan=False, description="step size before any decay"
    )
    decay_every: int = Field(0, ge=0, description="rounds between decays; 0: never")
    decay_factor: float = Field(0.5, gt=0, le=1, description="what the rate is multiplied with")
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd's")
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False, description="an L2 penalty")
    batch_size: int = Field(0, ge=0, description="examples a round; 0: the whole local set")
    proximal_mu: float = Field(0.0, ge=0, allow_inf_nan=False, description="fedprox's μ")
    precision: Literal["float32", "float64"] = Field("float32", description="of all arithmetic")
    wire_dtype: Literal["same", "float16", "bfloat16"] = Field(
        "same", description="narrower numbers for models on their way"
    )

    @field_validator("model_options")
    @classmethod
    def _is_a_json_object(cls, text: str) -> str:
        try:
            options = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"must be a JSON object, got {text!r}: {error}") from error
        if not isinstance(options, dict):
            raise ValueError(f"must be a JSON object like {{}}, got {text!r}")
        return text

    @property
    def options(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.model_options)
        return parsed

    def learning_rate_at(self, round_: int) -> float:
        """Return the learning rate of a round: it follows the global round, not the hospital."""
        decays = round_ // self.decay_every if self.decay_every else 0
        return float(self.learning_rate * self.decay_factor**decays)


class LocalSettings(SettingsGroup):
    """What each hospital decides for itself: its data and its machine.

    In simulation all hospitals' data come from one data set, split between them.
    """

    dataset: str = Field("digits", description="the data set, by its name in the registry")
    data_dir: str = Field("", description="its folder or file; empty: under $FEDDC_DATA")
    image_size: int = Field(0, ge=0, le=1024, description="pixels a side; 0: the data set's own")
    image_mode: Literal["auto", "grey", "rgb"] = Field("auto", description="channels of images")
    label_column: str = Field("label", description="csv: the class")
    group_column: str = Field("auto", description="keep equal values together; none: don't")
    silo_column: str = Field("", description="csv: the hospital an example comes from")
    test_share: float = Field(0.2, gt=0, lt=1, description="where no test set is set apart")
    split: Literal["equal", "pathological", "skewed", "natural"] = Field(
        "equal", description="how examples are divided among simulated hospitals"
    )
    samples: int = Field(8, ge=1, description="training examples of a hospital")
    held_out: int = Field(8, ge=0, description="examples of a hospital it never trains on")
    classes_per_hospital: int = Field(2, ge=1, description="pathological: classes of each")
    smallest_share: float = Field(0.3, ge=0, lt=1, description="the paper's c")
    smallest: int = Field(2, ge=1, description="the paper's n_min")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where a trainer computes")
    threads: int = Field(1, ge=1, le=256, description="CPU threads a trainer uses")
