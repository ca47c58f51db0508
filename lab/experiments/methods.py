"""The compared methods: federated daisy-chaining and the paper's baselines."""

from dataclasses import dataclass, field
from typing import Literal

from lab.experiments.definition import (
    Central,
    Experiment,
    ExperimentError,
    Preset,
    PresetName,
    Values,
)
from lab.standard_methods import STANDARD, method_names


@dataclass(frozen=True)
class Method:
    """A method as used by one experiment."""

    name: str
    label: str
    settings: Values = field(hash=False)
    central: Central | None = None
    judged_by: Literal["aggregate", "clients"] = "aggregate"
    """Chains that are never aggregated are evaluated one by one, as in the paper: the mean of
    models without a common ancestor says little about them."""


def methods_of(
    experiment: Experiment, preset_name: PresetName, base: Values, only: tuple[str, ...] = ()
) -> list[Method]:
    """Return the methods of an experiment, with their changes to the `base` settings."""
    preset = experiment.preset(preset_name)
    names = method_names(preset.methods, experiment.methods, _added(experiment, preset_name))
    unknown = [name for name in only if name not in names]
    if unknown:
        raise ExperimentError(
            f"{experiment.name} has no method {unknown[0]!r}: choose from {', '.join(names)}"
        )
    chosen = [name for name in names if name in (only or names)]
    return [_method(experiment, preset, name, base) for name in chosen]


def _added(experiment: Experiment, preset: PresetName) -> list[str]:
    return [
        name
        for name, change in experiment.method.items()
        if name not in STANDARD and preset in (change.presets or (preset,))
    ]


def _method(experiment: Experiment, preset: Preset, name: str, base: Values) -> Method:
    change = experiment.method.get(name)
    usual = name if name in STANDARD else (change.like if change else "")
    if usual not in STANDARD:
        raise ExperimentError(f"{experiment.name}: no method is called {name!r}")
    label, settings = STANDARD[usual]
    if change:
        label, settings = change.label or label, settings | change.settings
    whole = base | settings
    return Method(
        name,
        label.format(d=whole.get("daisy-period", 1), b=_period(base, settings)),
        settings,
        central=preset.centrals.get(name, preset.central) if usual == "central" else None,
        judged_by="clients" if whole.get("aggregation-period") == 0 else "aggregate",
    )


def _period(base: Values, settings: Values) -> object:
    return (base | settings).get("aggregation-period", 5)
