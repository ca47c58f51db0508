"""Settings of training and of a hospital's own data, checked once and typed ever after.

Keys are written with hyphens, as in `[tool.flwr.app.config]`.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from operation.config import SettingsGroup


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

    renamed: ClassVar[Mapping[str, str]] = {
        "samples": "examples",
        "silo-column": "hospital-column",
        "smallest": "skew-min-examples",
        "smallest-share": "skew-small-fraction",
        "test-share": "test-fraction",
    }

    dataset: str = Field("digits", description="the data set, by its name in the registry")
    data_dir: str = Field("", description="its folder or file; empty: under $FEDDC_DATA")
    image_size: int = Field(0, ge=0, le=1024, description="pixels a side; 0: the data set's own")
    image_mode: Literal["auto", "grey", "rgb"] = Field("auto", description="channels of images")
    label_column: str = Field("label", description="csv: the class")
    group_column: str = Field("auto", description="keep equal values together; none: don't")
    hospital_column: str = Field("", description="csv: the hospital an example comes from")
    test_fraction: float = Field(0.2, gt=0, lt=1, description="where no test set is set apart")
    split: Literal["equal", "pathological", "skewed", "natural"] = Field(
        "equal", description="how examples are divided among simulated hospitals"
    )
    examples: int = Field(8, ge=1, description="training examples of a hospital")
    held_out: int = Field(8, ge=0, description="examples of a hospital it never trains on")
    classes_per_hospital: int = Field(2, ge=1, description="pathological: classes of each")
    skew_small_fraction: float = Field(0.3, ge=0, lt=1, description="the paper's c")
    skew_min_examples: int = Field(2, ge=1, description="the paper's n_min")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where a trainer computes")
    threads: int = Field(1, ge=1, le=256, description="CPU threads a trainer uses")
