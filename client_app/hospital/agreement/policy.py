"""The hospital's policy: limits on what a coordinator may ask for, even if it signed it."""

import math
from collections.abc import Collection, Mapping
from datetime import date
from typing import Annotated, ClassVar

from pydantic import Field

from client_app.hospital.refusal import Refused
from learning.settings import TrainingSettings
from operation.config import SettingsGroup
from protocol.descriptor import Aggregate, Descriptor
from protocol.messages import MAX_LOSS, RefusalCode
from protocol.secure_sum.secure_leg import threshold
from protocol.study.announced_policy import (
    LARGEST,
    AnnouncedPolicy,
    Approval,
    Metric,
    PlannedExperiment,
    finite,
    objections,
)
from protocol.study.roster import DEFAULT_MINIMUM, Roster, fingerprint


class Policy(SettingsGroup):
    """The `[policy]` section of hospital.toml."""

    renamed: ClassVar[Mapping[str, str]] = {
        "minimum-local-items": "minimum-local-examples",
        "max-share-per-recipient": "maximum-fraction-per-recipient",
        "unsealed": "sealed, with the opposite value",
    }

    approval: Approval = Field(
        "each",
        description="each: an experiment begins after `feddc hospital approve`; automatic: at once",
    )
    maximum_experiments: int = Field(
        10, ge=1, description="most experiments under one roster, and most that wait for approval"
    )
    coordinators: list[str] = Field(
        default=[], description="fingerprints of allowed coordinators; empty: the roster's"
    )
    members: list[str] = Field(
        default=[], description="names of allowed hospitals; empty: all on the roster"
    )
    models: list[str] = Field(
        default=["linear", "mlp", "mnist-cnn", "mri-cnn", "resnet-small", "resnet18"],
        description="models that may be trained here; add others, e.g. cnn-3d, by name",
    )
    any_model: bool = Field(False, description="simulation only: allow every installed model")
    minimum_cohort: int = Field(
        DEFAULT_MINIMUM,
        ge=2,
        description="fewest members of a study, and models in a secure sum",
    )
    minimum_local_examples: int = Field(2, ge=1, description="fewest examples to train on")
    minimum_batch: int = Field(2, ge=1, description="fewest examples in a batch")
    maximum_rounds: int = Field(100_000, ge=1, description="most rounds of an experiment")
    maximum_parameters: int = Field(
        100_000_000, ge=1, description="most numbers of a model, counted before it is built"
    )
    maximum_learning_rate: float = Field(10.0, gt=0, description="highest learning rate allowed")
    experiment_lifetime: int = Field(
        90, ge=1, description="days until the keys of an experiment that was not closed are deleted"
    )
    plain_aggregation: bool = Field(
        False, description="let the coordinator read models sent for aggregation"
    )
    aggregate: Aggregate = Field(
        "verified",
        description="which aggregates of secure sums are trained on: verified, those that are the "
        "members' mean; same: also those of strategies that step from it, if all members get them",
    )
    metrics: list[Metric] = Field(
        default=[],
        description="figures computed from patients that the coordinator may read: examples, loss, "
        "accuracy, held-out; each lets a hostile coordinator reconstruct patients",
    )
    publish: bool = Field(
        False,
        description="let reports that the coordinator hands out show the figures of `metrics` "
        "under this hospital's name; false: pooled with others only",
    )
    metric_decimals: int = Field(3, ge=0, le=12, description="decimals that metrics are rounded to")
    minimum_held_out: int = Field(5, ge=1, description="fewest examples to evaluate on")
    maximum_fraction_per_recipient: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0,
        description="largest fraction of this hospital's models that one other may receive; "
        "0: twice the average",
    )
    private_streams: bool = Field(
        True,
        description="draw batches and own first models from a secret of this hospital's, not from "
        "the seed that coordinator and members know",
    )
    max_epsilon: float = Field(
        0.0,
        ge=0,
        description="most ε that all experiments together may cost a patient; experiments without "
        "noise are refused then; 0: no limit",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="δ of every ε of this hospital")
    sealed: bool = Field(True, description="simulation only: false allows readable hand-overs")
    hand_on_diverged: bool = Field(
        True, description="simulation only: false sends models whose training diverged"
    )

    def check_experiment(
        self, descriptor: Descriptor, training: TrainingSettings, roster: Roster, examples: int
    ) -> None:
        """Refuse a descriptor that exceeds the limits; called at set-up and again in every leg."""
        coordinator = fingerprint(roster.coordinator)
        for allowed, detail in (
            (
                not self.coordinators or coordinator in self.coordinators,
                f"coordinator {coordinator} is not allowed",
            ),
            (examples >= self.minimum_local_examples, f"{examples} examples are too few"),
            (descriptor.sealed or not self.sealed, "hand-overs would not be sealed"),
        ):
            if not allowed:
                raise Refused(RefusalCode.AGAINST_POLICY, detail)
        plan = PlannedExperiment(
            model=training.model,
            batch=min(training.batch_size or examples, examples),
            rounds=descriptor.rounds,
            learning_rate=training.learning_rate,
            averaging=descriptor.averaging,
            aggregate=descriptor.aggregate,
            members=len(roster.members),
            least_summands=threshold(len(roster.members), descriptor.minimum_cohort),
            epsilon=lambda delta: _experiment_epsilon(descriptor, training, delta),
        )
        for detail in objections(self, plan):
            raise Refused(RefusalCode.AGAINST_POLICY, detail)
        self.check_members(roster.names)

    def allows_model(self, name: str) -> bool:
        return self.any_model or name in self.models

    def announced(self, today: date) -> AnnouncedPolicy:
        """Return the settings of this policy that the coordinator may know.

        Names of hospitals and coordinators, and limits that hint at the number of patients, stay
        here. Raises ValueError if the models can't be listed.
        """
        return AnnouncedPolicy(
            since=today,
            approval=self.approval,
            maximum_experiments=min(self.maximum_experiments, LARGEST),
            models=tuple(self.models),
            minimum_cohort=min(self.minimum_cohort, LARGEST),
            minimum_batch=min(self.minimum_batch, LARGEST),
            maximum_rounds=min(self.maximum_rounds, LARGEST),
            maximum_parameters=min(self.maximum_parameters, LARGEST),
            maximum_learning_rate=finite(self.maximum_learning_rate),
            plain_aggregation=self.plain_aggregation,
            aggregate=self.aggregate,
            metrics=tuple(dict.fromkeys(self.metrics)),
            max_epsilon=finite(self.max_epsilon),
            delta=self.delta,
        )

    def check_members(self, names: Collection[str]) -> None:
        """Refuse an experiment in which too few take part, or a hospital that is not allowed."""
        if len(names) < self.minimum_cohort:
            raise Refused(RefusalCode.AGAINST_POLICY, f"{len(names)} members are too few")
        if self.members and not set(names) <= set(self.members):
            raise Refused(RefusalCode.AGAINST_POLICY, "a member is not allowed")

    def check_recipient(self, sent: int, total: int, members: int) -> None:
        """Refuse a hand-over if one hospital would get too many of this one's models.

        `sent` of `total` models, this one included, would have gone to it. The allowance is four
        standard deviations above the mean: chance alone exceeds it in at most one of ten thousand
        hand-overs.
        """
        fraction = self.maximum_fraction_per_recipient or min(1.0, 2 / (members - 1))
        allowance = fraction * total + 4 * math.sqrt(fraction * (1 - fraction) * total) + 1
        if sent > allowance:
            raise Refused(
                RefusalCode.TOO_MANY_TO_ONE, f"{sent} of {total} models would go to one hospital"
            )

    def rounded(self, metric: Metric, value: float | None) -> float | None:
        """Return a metric as it may be sent, or None if it may not, or training has diverged."""
        if value is None or metric not in self.metrics or not abs(value) <= MAX_LOSS:
            return None
        return round(value, self.metric_decimals)


def _experiment_epsilon(descriptor: Descriptor, training: TrainingSettings, delta: float) -> float:
    # Imported when needed: commands that only read the policy start without torch.
    from client_app.hospital.privacy.planned import experiment_epsilon

    return experiment_epsilon(descriptor, training, delta)
