"""Settings of training and of a hospital's data.

Keys are written with hyphens, as in `[tool.flwr.app.config]`.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from operation.config import SettingsGroup, setting


class TrainingSettings(SettingsGroup):
    """How every model of an experiment is trained: part of the descriptor."""

    model: str = setting(
        "mlp",
        "name of the network in the model registry",
        advice="See [models-and-data.md](models-and-data.md).",
    )
    model_options: str = setting(
        "{}",
        "hyper-parameters of the network",
        values="a JSON object",
        advice='For example `{"hidden": [64]}` for `mlp`.',
    )
    loss: Literal["cross-entropy", "hinge"] = setting(
        "cross-entropy",
        "loss function",
        advice="`hinge` needs two classes and one output: "
        '`model = "linear"` with `{"outputs": 1}`.',
    )
    optimizer: Literal["sgd", "adam"] = setting("sgd", "update rule of local training")
    optimizer_state: Literal["reset", "kept"] = setting(
        "reset",
        "what an aggregation does to the optimiser's state",
        advice="`kept`: each hospital continues with the state of the model it sent, as in the "
        "paper's scripts. Matters for `adam` and `momentum`. With `adam`, `daisy-period = 0` and "
        "`aggregation-period = 1` choose `kept`: a reset every round leaves Adam no memory.",
    )
    learning_rate: float = setting(
        0.1,
        "step size before any decay",
        gt=0,
        advice="The largest stable value for daisy-chaining was about a third of that for "
        "`daisy-period = 0`, `aggregation-period = 1`: lower it before you give up.",
    )
    decay_every: int = setting(
        0,
        "rounds between decays of the learning rate; 0: never",
        ge=0,
        advice="The learning rate follows the global round, whichever hospital a model is at.",
    )
    decay_factor: float = setting(0.5, "factor of one decay", gt=0, le=1)
    momentum: float = setting(
        0.0,
        "momentum of sgd",
        ge=0,
        lt=1,
        advice="Refused with `adam`. Its state travels with the model.",
    )
    weight_decay: float = setting(0.0, "L2 penalty, added to the gradient", ge=0)
    batch_size: int = setting(
        0,
        "examples per round; 0: the hospital's whole training set",
        ge=0,
        advice="Drawn without replacement. A hospital with fewer examples uses all of them. Most "
        "of the paper's experiments use the whole set.",
    )
    privacy_unit: Literal["none", "patient", "hospital"] = setting(
        "none",
        "whose data noise protects",
        advice="`patient`: each patient's gradient is clipped and noise is added in every round. "
        "`hospital`: the update of a leg is clipped and noise is added. See "
        "[privacy.md](privacy.md).",
    )
    clip_norm: float = setting(
        1.0,
        "largest norm of a patient's gradient, or of a hospital's update (privacy-unit)",
        gt=0,
    )
    noise_multiplier: float = setting(
        0.0,
        "noise of each release, as a multiple of clip-norm",
        ge=0,
    )
    average_noise_multiplier: float = setting(
        0.0,
        "noise of a secure average that replaces that of its rounds; 0: it keeps theirs",
        ge=0,
        advice="As a multiple of what one patient can change in the sum. Needs secure averaging.",
    )
    nominal_patients: int = setting(
        0,
        "patients per hospital that sums of gradients are divided by (privacy-unit = patient)",
        ge=0,
        advice="The same for all hospitals, and not a count of anybody's patients: a count is "
        "data. With it `batch-size` counts patients, drawn at the rate batch-size / "
        "nominal-patients.",
    )
    proximal_mu: float = setting(0.0, "strength of the pull towards the last aggregate", ge=0)
    precision: Literal["float32", "float64"] = setting(
        "float32",
        "precision of all arithmetic",
        advice="`float64` to compare engines or methods to the last digit.",
    )
    wire_dtype: Literal["same", "float16", "bfloat16"] = setting(
        "same",
        "number format of models in transit",
        advice="The narrower formats halve the bytes and round. Optimiser state is never narrowed. "
        'Only with `precision = "float32"`.',
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

    In simulation one data set is split between the hospitals.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "samples": "examples",
        "silo-column": "hospital-column",
        "smallest": "skew-min-examples",
        "smallest-share": "skew-small-fraction",
        "test-share": "test-fraction",
    }

    dataset: str = setting("digits", "name of the data set in the data registry")
    data_dir: str = setting(
        "",
        "folder or file of the data set; empty: its folder below $FEDDC_DATA",
        values="a folder; for `csv` also a file",
        advice="With `flwr run` give an absolute path.",
    )
    image_size: int = setting(
        0,
        "pixels per side of an image; 0: the data set's own",
        ge=0,
        le=1024,
        advice="For `brain-mri` (0: 150), `chest-xray` (128), `image-folder` (128) and `cifar10` "
        "(32; 16 or 8 are means of pixels). The other image sets keep their size.",
    )
    image_mode: Literal["auto", "grey", "rgb"] = setting(
        "auto",
        "colour channels of an image",
        advice="For the first three. `auto`: grey for `brain-mri` and `chest-xray`, and for a "
        "folder in which all images are grey.",
    )
    label_column: str = setting(
        "label", "column with the class (csv, medical-folder)", values="a column"
    )
    labels: str = setting(
        "",
        "table of the images' labels, from their folder (medical-folder)",
        values="a csv, xlsx or Parquet file",
        advice="Empty: `labels.csv` (`.xlsx`, `.parquet`) in the folder; without one, its folders "
        "are the classes.",
    )
    label_key: Literal["auto", "file", "series", "accession", "study", "patient"] = setting(
        "auto",
        "what tells which image a row of labels is about (medical-folder)",
        advice="`auto`: the most precise that the table has a column for, in this order: `file`, "
        "`series`, `accession`, `study`, `patient`.",
    )
    key_column: str = setting(
        "",
        "column of the labels with it; empty: found by its name (medical-folder)",
        values="a column",
        advice="Only with `label-key`.",
    )
    unlabelled: Literal["refuse", "leave-out"] = setting(
        "refuse", "what happens to images without exactly one label (medical-folder)"
    )
    unreadable: int = setting(
        0,
        "damaged files that may be left out (medical-folder)",
        ge=0,
        advice="With more of them the data are refused, and all are listed.",
    )
    codebook: str = setting(
        "",
        "codebook.toml that says what an image is; empty: a grey slice (medical-folder)",
        values="a file",
        advice="For volumes, Hounsfield units and spacing. A real hospital uses the codebook that "
        "it pinned when it joined.",
    )
    cache_dir: str = setting(
        "",
        "folder that keeps decoded images for the next start; empty: none (medical-folder)",
        values="a folder",
        advice="They are patients' images, readable for this user only. A real hospital keeps them "
        "in its state folder, wherever this points.",
    )
    group_column: str = setting(
        "auto",
        'column whose groups are never split; "none" disables',
        values="`auto`, `none`, a column",
        advice="For one patient's rows or images, and for copies. `auto`: all columns with a known "
        "name, and byte-identical images. `none` is the paper's random split and lets copies leak "
        "into the test set.",
    )
    hospital_column: str = setting(
        "",
        "column with the hospital of an example (csv)",
        values="a column",
        advice='For `split = "natural"`.',
    )
    test_fraction: float = setting(
        0.2,
        "fraction of the examples in the test set, where the publisher has none",
        gt=0,
        lt=1,
        advice="The coordinator tests on it.",
    )
    split: Literal["equal", "pathological", "skewed", "natural"] = setting(
        "equal",
        "division of the examples among simulated hospitals",
        advice="See [models-and-data.md](models-and-data.md).",
    )
    examples: int = setting(
        8,
        "training examples per hospital",
        ge=1,
        advice="`skewed`: of the average hospital; `natural`: unused.",
    )
    held_out: int = setting(
        8,
        "examples per hospital that it never trains on",
        ge=0,
        advice="It evaluates aggregates with them. 0: none.",
    )
    classes_per_hospital: int = setting(
        2,
        "classes at each hospital (pathological)",
        ge=1,
        advice="`examples` and `held-out` must be multiples of it.",
    )
    skew_small_fraction: float = setting(
        0.3,
        "fraction of hospitals with the fewest examples, the paper's c (skewed)",
        ge=0,
        lt=1,
    )
    skew_min_examples: int = setting(
        2, "examples of these smallest hospitals, the paper's n_min (skewed)", ge=1
    )
    device: Literal["cpu", "cuda", "mps", "auto"] = setting(
        "cpu",
        "where hospitals train",
        advice="`auto`: CUDA if PyTorch finds it, else Apple's MPS, else the CPU. The coordinator "
        "evaluates on the CPU. See [platforms.md](platforms.md#gpus).",
    )
    threads: int = setting(
        1,
        "CPU threads of one trainer",
        ge=1,
        le=256,
        advice="Several hospitals train at once, so 1 is mostly fastest. Results are bit-identical "
        "only for the same number.",
    )
