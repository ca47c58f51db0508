"""The contents of an experiment's TOML file, validated when it is read."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lab.engine import Backend
from operation.config import Scalar, describe

PresetName = Literal["laptop", "desk", "full"]
Values = dict[str, Scalar]


class ExperimentError(ValueError):
    """An experiment is unknown, invalid or incomplete; the message says what to do."""


class Part(BaseModel):
    """A table of the file: keys are written with hyphens, unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class PaperFigure(Part):
    """An accuracy from the paper, in per cent, with its printed deviation."""

    accuracy: float
    deviation: float | None = None


class Change(Part):
    """Differences between a method in this experiment and the standard method of that name."""

    label: str = ""
    like: str = ""
    settings: Values = {}
    presets: tuple[PresetName, ...] = ()
    """The presets that have the method without naming it; empty: all."""


class Central(Part):
    """Training on the pooled data of all hospitals: number of steps and batch size."""

    steps: int = Field(ge=1)
    batch_size: int = Field(ge=1)


class Variant(Part):
    """One of several configurations in which an experiment compares the methods."""

    label: str
    x: float | None = None
    settings: Values = {}
    methods: tuple[str, ...] = ()
    paper: dict[str, PaperFigure] = {}

    @field_validator("paper", mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return paper_figures(value)


class Preset(Part):
    """One size of the experiment: `full` has the paper's.

    `desk` has the paper's examples per hospital and trains until FedAvg(1) fits them, with fewer
    hospitals, smaller images and narrower networks. `laptop` is a demonstration of minutes.
    """

    seeds: int = Field(3, ge=1)
    learning_rates: tuple[float, ...] = Field(min_length=1)
    settings: Values = {}
    validation: Values = {}
    """Settings that differ while a learning rate is chosen, if there are no unused data."""

    central: Central
    centrals: dict[str, Central] = {}
    """The same for other methods that train on pooled data, by name."""

    backend: Backend = "auto"
    explanation: str = ""
    """Why the outcome is what it is; written after a run, for the results page."""

    test_sample: int | None = Field(None, ge=1)
    evaluations: int = Field(30, ge=1)
    variants: tuple[Variant, ...] = ()
    methods: tuple[str, ...] = ()


class Experiment(Part):
    """One table or figure of the paper, or an ablation."""

    name: str
    title: str
    source: str
    claim: str = ""
    """The paper's conclusion, or the ablation's question."""

    note: str = ""
    needs: str = ""
    """A missing feature that the experiment needs; empty if it can be run."""

    stand_in: str = ""
    """An experiment of the same shape that needs no data files."""

    methods: tuple[str, ...] = ()
    judged: Literal["accuracy", "balanced-accuracy"] = "accuracy"
    choose: Literal["once", "each-seed"] = "once"
    """Whether the learning rate is chosen on the first seed's validation data or on each seed's
    own. The latter where seeds draw their test sets from the same examples, so that no rate is
    chosen on another seed's test examples."""

    x_label: str = ""
    plots: tuple[str, ...] = ()
    """The plots shown in the documentation; by default the plot over the variants, else accuracy
    against communication."""

    settings: Values = {}
    method: dict[str, Change] = {}
    variants: tuple[Variant, ...] = ()
    paper: dict[str, PaperFigure] = {}
    full: Preset | None = None
    desk: Preset | None = None
    laptop: Preset | None = None

    @field_validator("paper", mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return paper_figures(value)

    @staticmethod
    def parse(values: dict[str, Any], *, source: str) -> "Experiment":
        try:
            return Experiment.model_validate(values)
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise ExperimentError(f"{source}: {place}: {describe(error)}") from error

    def preset(self, name: PresetName) -> Preset:
        """Return the preset of this name."""
        if self.needs:
            raise ExperimentError(f"{self.name} can't be run yet: {self.needs}")
        chosen: Preset | None = getattr(self, name)
        if chosen is None:
            raise ExperimentError(f"{self.name} has no {name} preset")
        return chosen

    def variants_in(self, name: PresetName) -> tuple[Variant, ...]:
        """Return the variants in a preset; an experiment without variants has an unnamed one."""
        return self.preset(name).variants or self.variants or (Variant(label=""),)


def paper_figures(value: object) -> object:
    """Expand the short forms `feddc = 62.9` and `feddc = [62.9, 0.02]`."""
    if not isinstance(value, dict):
        return value
    return {method: _figure(figure) for method, figure in value.items()}


def _figure(value: object) -> object:
    match value:
        case int() | float():
            return {"accuracy": value}
        case [accuracy, deviation]:
            return {"accuracy": accuracy, "deviation": deviation}
        case _:
            return value
