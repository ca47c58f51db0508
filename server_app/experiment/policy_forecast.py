"""What the hospitals have announced of their policies, and what they would refuse.

An announcement may be out of date: only a hospital's agent knows and enforces its policy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from learning.models import count_parameters
from learning.trainer import TaskSpec
from operation.runs.event_file import FILE_NAME, EventFile
from protocol.randomness import SEED_BYTES
from protocol.secure_sum.secure_leg import threshold
from protocol.study.announced_policy import (
    LARGEST,
    AnnouncedPolicy,
    PlannedExperiment,
    objections,
)
from server_app.config.aggregators import build_aggregator
from server_app.config.noise_target import epsilon_at
from server_app.config.run_config import Settings
from server_app.study.study_members import announced_text
from strategies.session.secure.secure_average import aggregate_of


@dataclass(frozen=True)
class PolicyForecast:
    """What one hospital has announced, if anything, and what it would refuse of an experiment."""

    announced: AnnouncedPolicy | None
    would_refuse: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        policy = None if self.announced is None else self.announced.model_dump(mode="json")
        return {"announced": policy, "would_refuse": list(self.would_refuse)}


def compare_policies(
    announced: Mapping[str, AnnouncedPolicy | None], plan: PlannedExperiment
) -> dict[str, PolicyForecast]:
    """Compare an experiment with what each hospital has announced."""
    return {
        name: PolicyForecast(policy, tuple(objections(policy, plan)) if policy else ())
        for name, policy in announced.items()
    }


def planned_experiment(settings: Settings, task: TaskSpec, begun: int) -> PlannedExperiment:
    """Return what hospitals compare with their limits, as their agents would see it."""
    algorithm, training = settings.algorithm, settings.training
    is_plain = algorithm.averaging == "plain"
    strategy = build_aggregator(settings, route_seed=bytes(SEED_BYTES))
    return PlannedExperiment(
        model=training.model,
        batch=training.batch_size or LARGEST,  # all examples, of an unknown number
        rounds=algorithm.rounds,
        learning_rate=training.learning_rate,
        averaging="plain" if is_plain else "secure",
        aggregate="verified" if is_plain else aggregate_of(strategy),
        members=algorithm.hospitals,
        least_summands=threshold(algorithm.hospitals, algorithm.minimum_cohort),
        epsilon=lru_cache(lambda delta: epsilon_at(settings, delta)),
        begun=begun,
        parameters=count_parameters(
            training.model, shape=task.shape, classes=task.classes, options=training.options
        ),
    )


def begun_experiments(experiments: Iterable[Path], roster: bytes) -> int:
    """Count the experiments that have begun under a roster, given as it was signed."""
    return sum(
        (folder / "roster").is_file()
        and (folder / "roster").read_bytes() == roster
        and any(e.get("event") == "start" for e in EventFile(folder / FILE_NAME).new_events())
        for folder in experiments
    )


def policy_lines(found: Mapping[str, PolicyForecast]) -> list[str]:
    """Describe what hospitals have announced, in lines for people."""
    lines = []
    for name, one in found.items():
        lines.append(f"{name} {announced_text(one.announced)}")
        lines += [f"    would refuse: {reason}" for reason in one.would_refuse]
    return lines
