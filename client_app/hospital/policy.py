"""The hospital's policy: what a coordinator may ask for here, whatever it has signed."""

import math
from typing import Annotated, Literal

from pydantic import Field

from learning.settings import TrainingSettings
from operation.config import SettingsGroup
from protocol.descriptor import Descriptor
from protocol.messages import RefusalCode
from protocol.study.roster import Roster, fingerprint

from .refusal import Refused

Metric = Literal["examples", "loss", "accuracy", "held-out"]


class Policy(SettingsGroup):
    """The `[policy]` section of hospital.toml."""

    coordinators: list[str] = Field(
        default=[], description="fingerprints of coordinators to work with; empty: the roster's"
    )
    members: list[str] = Field(
        default=[], description="names of hospitals to work with; empty: the roster's"
    )
    models: list[str] = Field(
        default=["linear", "mlp", "mnist-cnn", "mri-cnn", "resnet-small", "resnet18"],
        description="models that may be trained here, plug-ins included",
    )
    any_model: bool = Field(False, description="simulation only: whatever is installed")
    minimum_cohort: int = Field(3, ge=2, description="members a study must have")
    minimum_local_items: int = Field(2, ge=1, description="examples here before any training")
    minimum_batch: int = Field(2, ge=1, description="examples a round must at least use")
    maximum_rounds: int = Field(100_000, ge=1, description="rounds an experiment may have")
    maximum_learning_rate: float = Field(10.0, gt=0, description="largest steps taken here")
    plain_aggregation: bool = Field(
        True, description="may the coordinator read a model sent for aggregation?"
    )
    metrics: list[Metric] = Field(
        default=["examples", "loss", "accuracy", "held-out"], description="what may leave"
    )
    metric_decimals: int = Field(3, ge=0, le=12, description="how figures are rounded")
    minimum_held_out: int = Field(5, ge=1, description="examples an evaluation must rest on")
    max_share_per_recipient: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="share of my models one hospital may get; 0: twice its fair share"
    )
    unsealed: bool = Field(False, description="simulation only: hand models over readable")

    def check_experiment(self, descriptor: Descriptor, roster: Roster, examples: int) -> None:
        """Refuse a descriptor that asks for more than this hospital gives; done once."""
        training = TrainingSettings.parse(dict(descriptor.training), source="descriptor")
        batch = training.batch_size or examples
        coordinator = fingerprint(roster.coordinator)
        for fine, detail in (
            (
                not self.coordinators or coordinator in self.coordinators,
                f"coordinator {coordinator} is not allowed",
            ),
            (
                self.any_model or training.model in self.models,
                f"model {training.model} is not allowed",
            ),
            (len(roster.members) >= self.minimum_cohort, "too few members"),
            (not self.members or set(roster.names) <= set(self.members), "a member is not allowed"),
            (examples >= self.minimum_local_items, "too few examples here"),
            (min(batch, examples) >= self.minimum_batch, f"batches of {batch} are too small"),
            (descriptor.rounds <= self.maximum_rounds, f"{descriptor.rounds} rounds are too many"),
            (
                training.learning_rate <= self.maximum_learning_rate,
                f"learning rate {training.learning_rate} is too high",
            ),
            (descriptor.sealed or self.unsealed, "models would travel unsealed"),
        ):
            if not fine:
                raise Refused(RefusalCode.AGAINST_POLICY, detail)

    def check_recipient(self, sent: int, total: int, members: int) -> None:
        """Refuse a hand-over if one hospital would get too many of this one's models.

        `sent` of `total` models, this one included, would have gone to it. Chance alone exceeds
        the allowance once in ten thousand hand-overs or less: four standard deviations.
        """
        share = self.max_share_per_recipient or min(1.0, 2 / (members - 1))
        allowance = share * total + 4 * math.sqrt(share * (1 - share) * total) + 1
        if sent > allowance:
            raise Refused(
                RefusalCode.TOO_MANY_TO_ONE, f"{sent} of {total} models would go to one hospital"
            )

    def rounded(self, metric: Metric, value: float | None) -> float | None:
        """Return a figure as it may leave, or nothing."""
        if value is None or metric not in self.metrics:
            return None
        return round(value, self.metric_decimals)
