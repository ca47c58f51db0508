"""What an experiment would do, before it is started: legs, models, bytes, time, who reads what.

Builds the network to know its size, so it imports torch: for the command only.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from learning.trainer import Network, TaskSpec, optimizer_state_layout
from operation.runs.event_file import FILE_NAME, Event, EventFile, finite
from operation.terminal import byte_size, counted
from protocol.model_size import model_size
from protocol.randomness import SEED_BYTES
from protocol.schedule import Ending, Leg
from protocol.secure_sum.secure_leg import threshold
from protocol.secure_sum.vector import VectorForm
from server_app.config.noise_target import epsilon_of
from server_app.config.run_config import Settings

from .policy_forecast import PolicyForecast, policy_lines

_LAST_LEGS = 20
_ABOUT_POLICIES = (
    "as hospitals have announced them; each compares the experiment with the policy that it has "
    "when it is asked, and refuses with `against-policy`"
)


@dataclass(frozen=True)
class Forecast:
    """What would happen. Models and bytes are those of one hospital that answers in every leg.

    Bytes are those of models; signatures and key shares add a few kilobytes per message.
    With a random schedule or `fraction` below 1 the numbers are the most that can be expected.
    """

    hospitals: int
    rounds: int
    legs: int
    hand_overs: int
    aggregations: int
    parameters: int
    models_sent: int
    models_received: int
    bytes_sent: int
    bytes_received: int
    seconds: float | None
    """From the last legs measured; None if none has been."""
    measured: str
    readable_by_recipients: int
    """How often one hospital's model can be read by another hospital, without knowing whose."""
    readable_by_coordinator: int
    """How often the coordinator can read one hospital's model."""
    sums: int
    """How often the coordinator learns a sum of at least `least_summands` models."""
    least_summands: int | None
    is_upper_bound: bool
    epsilon: float | None
    """What it costs a patient, or a hospital, at `target-delta`; None without a privacy unit."""
    policies: Mapping[str, PolicyForecast] = field(default_factory=dict)
    """What each hospital has announced, by name."""

    def as_dict(self) -> dict[str, Any]:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return values | {"policies": {name: p.as_dict() for name, p in self.policies.items()}}


def forecast(
    settings: Settings,
    task: TaskSpec,
    experiments: list[Path],
    policies: Mapping[str, PolicyForecast] | None = None,
) -> Forecast:
    """Compute what an experiment with these settings would do, without any hospital.

    `experiments` are the study's folders, oldest first, whose last legs were measured. `policies`
    are the hospitals' announced ones.
    """
    algorithm, hospitals = settings.algorithm, settings.algorithm.hospitals
    # Any seed: a random schedule has as many legs with every one.
    legs = algorithm.to_schedule(bytes(SEED_BYTES)).legs
    hand_overs = sum(leg.ending is Ending.HAND_OVER for leg in legs)
    aggregations = len(legs) - hand_overs
    network = Network(settings.training, task, seed=0)
    wire, secure = settings.training.wire_dtype, algorithm.averaging != "plain"
    layouts = network.parameter_layout, network.buffer_layout
    plain = model_size(*layouts, {}, wire=wire).total
    handed = model_size(*layouts, optimizer_state_layout(network), wire=wire).total
    vector = VectorForm(
        *layouts,
        members=hospitals,
        weighted=algorithm.weighting == "examples",
        narrow=wire != "same",
    ).length
    sent = {Ending.HAND_OVER: handed, Ending.AGGREGATION: vector if secure else plain}
    seconds, measured = _seconds(legs, experiments)
    return Forecast(
        hospitals=hospitals,
        rounds=algorithm.rounds,
        legs=len(legs),
        hand_overs=hand_overs,
        aggregations=aggregations,
        parameters=sum(tensor.numel() for tensor in network.parameters.values()),
        models_sent=len(legs),
        # The first is built at the hospital; the last is the final model.
        models_received=len(legs),
        bytes_sent=sum(sent[leg.ending] for leg in legs),
        bytes_received=sum(sent[leg.ending] for leg in legs),
        seconds=seconds,
        measured=measured,
        readable_by_recipients=hand_overs,
        readable_by_coordinator=0 if secure else aggregations,
        sums=aggregations if secure else 0,
        least_summands=threshold(hospitals, algorithm.minimum_cohort) if secure else None,
        is_upper_bound=algorithm.schedule == "random" or algorithm.fraction < 1,
        epsilon=finite(epsilon_of(settings)),
        policies=policies or {},
    )


def forecast_text(found: Forecast) -> str:
    """Describe a forecast in lines for people."""
    most = "up to " if found.is_upper_bound else ""
    endings = f"{found.hand_overs:,} hand-overs, {found.aggregations:,} aggregations"
    rows = {
        "hospitals": str(found.hospitals),
        "rounds": f"{found.rounds:,}, in {counted(found.legs, 'leg')}: {endings}",
        "model": f"{found.parameters:,} parameters",
        "each hospital": f"sends {most}{found.models_sent:,} models "
        f"({byte_size(found.bytes_sent)}) and receives {most}{found.models_received:,} "
        f"({byte_size(found.bytes_received)})",
        "time": found.measured,
        "readable": f"each hospital's model {most}{found.readable_by_recipients:,} times by "
        f"another hospital that is not told whose it is, {most}{found.readable_by_coordinator:,} "
        "times by the coordinator",
        "aggregates": "readable by everybody"
        + (
            f"; the coordinator learns {most}{found.sums:,} sums, each of at least "
            f"{found.least_summands} hospitals' models"
            if found.least_summands
            else ""
        ),
        "privacy": "no noise: records may be reconstructed from a model by anybody who can read it"
        if found.epsilon is None
        else f"ε = {found.epsilon:.3g}; each hospital accounts with the δ of its own policy",
        "policies": _ABOUT_POLICIES,
    }
    lines = [f"{name:14} {text}" for name, text in rows.items()]
    return "\n".join([*lines, *(f"{'':14} {line}" for line in policy_lines(found.policies))])


def _seconds(legs: tuple[Leg, ...], experiments: list[Path]) -> tuple[float | None, str]:
    """Return how long the legs would take, and from what that is known."""
    for folder in reversed(experiments):
        last = _leg_events(folder)[-_LAST_LEGS:]
        by_ending = {
            ending: [float(leg["seconds"]) for leg in last if leg.get("ending") == ending]
            for ending in Ending
        }
        known = [seconds for times in by_ending.values() for seconds in times]
        if not known:
            continue
        usual = {ending: statistics.median(times or known) for ending, times in by_ending.items()}
        total = sum(usual[leg.ending] for leg in legs)
        return total, (
            f"about {_duration(total)}, if legs take as long as the last {len(known)} of "
            f"{folder.name} did ({statistics.median(known):.1f} s)"
        )
    return None, "not known: no leg of this study has been measured yet"


def _leg_events(folder: Path) -> list[Event]:
    return [
        event
        for event in EventFile(folder / FILE_NAME).new_events()
        if event.get("event") == "leg" and isinstance(event.get("seconds"), int | float)
    ]


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
