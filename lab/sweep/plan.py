"""The trials of a comparison: candidates for the learning rate, then the reported ones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.experiments import (
    Experiment,
    ExperimentError,
    Method,
    PresetName,
    Variant,
    methods_of,
)
from lab.experiments.definition import Values
from lab.sweep.record import Record
from lab.sweep.trial import Trial


@dataclass(frozen=True)
class Request:
    """A comparison as requested by the user."""

    experiment: Experiment
    preset: PresetName
    methods: tuple[str, ...] = ()
    seeds: int | None = None
    data: str = ""
    """A digest of the data it was first run on; empty if unknown."""

    def to_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment.model_dump(by_alias=True, mode="json"),
            "preset": self.preset,
            "methods": list(self.methods),
            "seeds": self.seeds,
            "data": self.data,
        }

    @staticmethod
    def from_json(values: dict[str, Any]) -> "Request":
        experiment = Experiment.parse(values["experiment"], source="sweep.json")
        return Request(
            experiment,
            values["preset"],
            tuple(values["methods"]),
            values["seeds"],
            values.get("data", ""),
        )


@dataclass(frozen=True)
class Cell:
    """One row of the table: a method in a variant."""

    variant: Variant
    method: Method


class SweepPlan:
    """The trials of a request."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.experiment = request.experiment
        self.preset = self.experiment.preset(request.preset)
        self.seeds = tuple(range(request.seeds or self.preset.seeds))
        self.cells = tuple(self._cells())
        if not self.cells:
            raise ExperimentError(f"{self.experiment.name} has none of these methods")

    def _cells(self) -> Iterator[Cell]:
        for variant in self.experiment.variants_in(self.request.preset):
            for method in methods_of(
                self.experiment, self.request.preset, self.base(variant), self.request.methods
            ):
                if method.name in (variant.methods or (method.name,)):
                    yield Cell(variant, method)

    def base(self, variant: Variant) -> Values:
        """Return the common settings of all methods in a variant."""
        return self.experiment.settings | self.preset.settings | variant.settings

    @property
    def choosing_seeds(self) -> tuple[int, ...]:
        """The seeds whose validation data are used to choose a learning rate."""
        return self.seeds[:1] if self.experiment.choose == "once" else self.seeds

    def candidates(self) -> list[Trial]:
        """Return the trials for choosing learning rates; none if there is only one rate."""
        return [
            self.candidate(cell, seed, rate)
            for seed, cell in self._in_order(self.choosing_seeds)
            if len(self.rates(cell)) > 1
            for rate in self.rates(cell)
        ]

    def rates(self, cell: Cell) -> tuple[float, ...]:
        """Return the learning rates to choose from; a variant may fix one."""
        own = cell.variant.settings.get("learning-rate")
        return self.preset.learning_rates if own is None else (float(own),)

    def candidate(self, cell: Cell, seed: int, rate: float) -> Trial:
        return self._trial(cell, seed, rate, self.preset.validation)

    def finals(self, records: Mapping[str, Record]) -> list[Trial]:
        """Return the reported trials; where validation changes nothing, these are candidates."""
        return [
            self.final(cell, seed, rate)
            for seed, cell in self._in_order(self.seeds)
            if (rate := self.rate_of(cell, seed, records)) is not None
        ]

    def reported(self, cell: Cell, records: Mapping[str, Record]) -> list[Record]:
        """Return the records of a cell's reported trials, without those that diverged."""
        rates = {seed: self.rate_of(cell, seed, records) for seed in self.seeds}
        found = [
            records.get(self.final(cell, seed, rate).key)
            for seed, rate in rates.items()
            if rate is not None
        ]
        return [record for record in found if record is not None and record.status == "done"]

    def final(self, cell: Cell, seed: int, rate: float) -> Trial:
        return self._trial(cell, seed, rate, {})

    def scores(self, cell: Cell, seed: int, records: Mapping[str, Record]) -> dict[float, float]:
        """Return the validation accuracy of each learning rate that did not diverge."""
        chooser = seed if seed in self.choosing_seeds else self.choosing_seeds[0]
        scores = {}
        for rate in self.rates(cell):
            record = records.get(self.candidate(cell, chooser, rate).key)
            by_clients = cell.method.judged_by == "clients"
            if record and (metrics := record.clients_held_out if by_clients else record.held_out):
                balanced = self.experiment.judged == "balanced-accuracy"
                scores[rate] = metrics.balanced_accuracy if balanced else metrics.accuracy
        return scores

    def own(self, records: Mapping[str, Record]) -> dict[str, Record]:
        """Return the records of this plan; its folder may hold more, for other methods."""
        keys = {trial.key for trial in (*self.candidates(), *self.finals(records))}
        return {key: record for key, record in records.items() if key in keys}

    def rate_of(self, cell: Cell, seed: int, records: Mapping[str, Record]) -> float | None:
        """Return the best learning rate (the smallest of equals); None if all diverged."""
        if len(self.rates(cell)) == 1:
            return self.rates(cell)[0]
        scores = self.scores(cell, seed, records)
        return max(scores, key=lambda rate: (scores[rate], -rate)) if scores else None

    def _in_order(self, seeds: tuple[int, ...]) -> Iterator[tuple[int, Cell]]:
        """Yield trials with the same data one after another, because loading takes seconds."""
        for variant in dict.fromkeys(cell.variant.label for cell in self.cells):
            for seed in seeds:
                for cell in self.cells:
                    if cell.variant.label == variant:
                        yield seed, cell

    def _trial(self, cell: Cell, seed: int, rate: float, validation: Values) -> Trial:
        values = self.base(cell.variant) | cell.method.settings | validation
        return Trial(
            variant=cell.variant.label,
            method=cell.method.name,
            seed=seed,
            learning_rate=rate,
            values=values,
            central=cell.method.central,
            backend=self.preset.backend,
            test_sample=self.preset.test_sample,
            evaluations=self.preset.evaluations,
        )
