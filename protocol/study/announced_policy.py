"""What a hospital announces of its policy, and what an experiment would be refused for.

It has settings only, nothing that is computed from patients. The agent alone enforces the policy,
as it is then: an announcement may be out of date.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from protocol.descriptor import Aggregate, Averaging

Approval = Literal["each", "automatic"]
Metric = Literal["examples", "loss", "accuracy", "held-out"]

LARGEST = 2**53 - 1  # that every JSON reader reads exactly
_Limit = Annotated[int, Field(ge=1, le=LARGEST)]
# The hospital wrote them, and the coordinator prints them.
_ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$")]


class AnnouncedPolicy(BaseModel):
    """The limits that a coordinator should know before it plans an experiment.

    `since` is the day on which the hospital announced them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    since: date
    approval: Approval
    maximum_experiments: _Limit
    models: Annotated[tuple[_ModelName, ...], Field(max_length=64)]
    minimum_cohort: Annotated[int, Field(ge=2, le=LARGEST)]
    minimum_batch: _Limit
    maximum_rounds: _Limit
    maximum_parameters: _Limit
    maximum_learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    plain_aggregation: bool
    aggregate: Aggregate
    metrics: Annotated[tuple[Metric, ...], Field(max_length=4)]
    max_epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)]

    def allows_model(self, name: str) -> bool:
        return name in self.models

    def has_limits_of(self, other: "AnnouncedPolicy") -> bool:
        """Return whether both announce the same, whenever they did."""
        return self == other.model_copy(update={"since": self.since})


class Limits(Protocol):
    """What an experiment is compared with: the hospital's policy, or what it announced of it."""

    @property
    def minimum_cohort(self) -> int: ...
    @property
    def minimum_batch(self) -> int: ...
    @property
    def maximum_experiments(self) -> int: ...
    @property
    def maximum_rounds(self) -> int: ...
    @property
    def maximum_parameters(self) -> int: ...
    @property
    def maximum_learning_rate(self) -> float: ...
    @property
    def plain_aggregation(self) -> bool: ...
    @property
    def aggregate(self) -> Aggregate: ...
    @property
    def max_epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    def allows_model(self, name: str) -> bool: ...


@dataclass(frozen=True)
class PlannedExperiment:
    """What of an experiment is compared with limits.

    `least_summands` are the fewest models in a secure sum. `epsilon` computes what the experiment
    costs a patient at a δ: infinity without noise. `begun` are the experiments that the hospital
    has begun under this roster, and `parameters` the numbers of the model, where they are known.
    """

    model: str
    batch: int
    rounds: int
    learning_rate: float
    averaging: Averaging
    aggregate: Aggregate
    members: int
    least_summands: int
    epsilon: Callable[[float], float]
    begun: int = 0
    parameters: int = 0


def objections(limits: Limits, plan: PlannedExperiment) -> Iterator[str]:
    """Yield what an experiment is refused for."""
    for allowed, detail in (
        (limits.allows_model(plan.model), f"model {plan.model} is not allowed"),
        (plan.batch >= limits.minimum_batch, f"batches of {plan.batch} are too small"),
        (plan.rounds <= limits.maximum_rounds, f"{plan.rounds} rounds are too many"),
        (
            plan.parameters <= limits.maximum_parameters,
            f"{plan.parameters} parameters are more than {limits.maximum_parameters}",
        ),
        (
            plan.learning_rate <= limits.maximum_learning_rate,
            f"learning rate {plan.learning_rate} is too high",
        ),
        (
            plan.averaging == "secure" or limits.plain_aggregation,
            "averaging is plain: the coordinator would read the models of this hospital",
        ),
        (
            plan.averaging == "plain" or plan.least_summands >= limits.minimum_cohort,
            f"a secure sum may be of {plan.least_summands} models, the hospital's minimum-cohort "
            f"is {limits.minimum_cohort}: the coordinator can set its own as high",
        ),
        (
            plan.aggregate == "verified" or limits.aggregate == "same",
            "the aggregate is not the members' mean, so the hospital can't verify it",
        ),
        (plan.members >= limits.minimum_cohort, f"{plan.members} members are too few"),
        (
            plan.begun < limits.maximum_experiments,
            f"{plan.begun} experiments under this roster have begun; maximum-experiments is "
            f"{limits.maximum_experiments}",
        ),
        # Last: it may take seconds.
        (
            not limits.max_epsilon or plan.epsilon(limits.delta) <= limits.max_epsilon,
            f"it would cost a patient more than max-epsilon = {limits.max_epsilon}, or has no "
            "noise at all",
        ),
    ):
        if not allowed:
            yield detail


def policy_text(policy: AnnouncedPolicy) -> str:
    """Describe an announced policy in one sentence for people."""
    begins = "after approval" if policy.approval == "each" else "at once"
    reads: list[str] = [*policy.metrics]
    if policy.plain_aggregation:
        reads.append("models sent for aggregation")
    epsilon = f"{policy.max_epsilon:g} (δ = {policy.delta:g})" if policy.max_epsilon else "no limit"
    trained = "the members' mean" if policy.aggregate == "verified" else "any that all receive"
    return "; ".join(
        (
            f"begins an experiment {begins}",
            f"at least {policy.minimum_cohort} members and batches of {policy.minimum_batch}",
            f"at most {policy.maximum_experiments:,} experiments, {policy.maximum_rounds:,} "
            f"rounds, {policy.maximum_parameters:,} parameters, learning rate "
            f"{policy.maximum_learning_rate:g}",
            f"models {', '.join(policy.models) or 'none'}",
            f"aggregates: {trained}",
            f"the coordinator may read: {', '.join(reads) or 'nothing'}",
            f"ε in all: {epsilon}",
        )
    )


def finite(limit: float) -> float:
    """Return a limit as it can be announced: JSON has no infinity."""
    return min(limit, sys.float_info.max)
