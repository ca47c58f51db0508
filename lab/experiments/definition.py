"""What an experiment's TOML file holds, checked when it is read."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lab.engine import Backend
from operation.config import Scalar, describe

SettingName = Literal["laptop", "full"]
Values = dict[str, Scalar]


class ExperimentError(ValueError):
    """An experiment that is unknown, impossible, or lacks something; one line says what to do."""


class Part(BaseModel):
    """A part of the file: keys are written with hyphens, and unknown ones are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class PaperFigure(Part):
    """A number of the paper, in per cent, with the deviation printed beside it."""

    accuracy: float
    deviation: float | None = None


class Change(Part):
    """How this experiment's version of a method differs from the usual one of that name."""

    label: str = ""
    like: str = ""
    settings: Values = {}


class Central(Part):
    """Training on all hospitals' data together: as many steps, on batches of this size."""

    steps: int = Field(ge=1)
    batch_size: int = Field(ge=1)


class Variant(Part):
    """One of several settings that an experiment compares every method in."""

    label: str
    x: float | None = None
    settings: Values = {}
    methods: tuple[str, ...] = ()
    paper: dict[str, PaperFigure] = {}

    @field_validator("paper", mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return paper_figures(value)


class Setting(Part):
    """One size of the experiment: the paper's, or one that a laptop can do."""

    seeds: int = Field(3, ge=1)
    learning_rates: tuple[float, ...] = Field(min_length=1)
    settings: Values = {}
    validation: Values = {}
    """What differs while a learning rate is chosen, where there are no unused training data."""

    central: Central
    centrals: dict[str, Central] = {}
    """The same for further methods of that kind, by name."""

    backend: Backend = "auto"
    test_sample: int | None = Field(None, ge=1)
    evaluations: int = Field(30, ge=1)
    variants: tuple[Variant, ...] = ()
    methods: tuple[str, ...] = ()


class Experiment(Part):
    """One table or figure of the paper, or a study of our own."""

    name: str
    title: str
    source: str
    claim: str = ""
    """What the paper concludes from it, or what the study asks."""

    note: str = ""
    needs: str = ""
    """What is not there yet that it needs; empty: it can be run."""

    stand_in: str = ""
    """Another experiment of the same shape, for those who lack the data."""

    methods: tuple[str, ...] = ()
    judged: Literal["accuracy", "balanced-accuracy"] = "accuracy"
    choose: Literal["once", "each-seed"] = "once"
    """The learning rate: by the first seed's validation data, or by each seed's own. The latter
    where seeds draw their test sets from the same examples, so that none is chosen by another's."""

    x_label: str = ""
    plots: tuple[str, ...] = ()
    """The plots that the documentation shows; none named: the one over the variants, else
    accuracy against communication."""

    settings: Values = {}
    method: dict[str, Change] = {}
    variants: tuple[Variant, ...] = ()
    paper: dict[str, PaperFigure] = {}
    full: Setting | None = None
    laptop: Setting | None = None

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

    def setting(self, name: SettingName) -> Setting:
        """Return one size of it."""
        if self.needs:
            raise ExperimentError(f"{self.name} can't be run yet: {self.needs}")
        chosen = self.full if name == "full" else self.laptop
        if chosen is None:
            raise ExperimentError(f"{self.name} has no {name} setting")
        return chosen

    def variants_in(self, name: SettingName) -> tuple[Variant, ...]:
        """Return the variants of one size; an experiment without any has one of no name."""
        return self.setting(name).variants or self.variants or (Variant(label=""),)


def paper_figures(value: object) -> object:
    """Let files write `feddc = 62.9` or `feddc = [62.9, 0.02]`."""
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
