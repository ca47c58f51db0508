"""An experiment that this hospital has agreed to."""

from dataclasses import dataclass

from client_app.hospital.local_training import LocalTraining
from client_app.state.experiment_store import ExperimentStore
from protocol.descriptor import Descriptor
from protocol.schedule import Leg
from protocol.secure_sum.secure_leg import threshold
from protocol.study.roster import Roster


@dataclass(frozen=True)
class Agreement:
    """What follows from the descriptor alone: its legs, and the training that it describes."""

    descriptor: Descriptor
    legs: tuple[Leg, ...]
    training: LocalTraining
    examples: int  # on which this hospital trains


@dataclass(frozen=True)
class AgreedExperiment:
    """What was agreed, what is stored about it, and the members and keys of one generation."""

    hospital: str  # the name of this hospital
    store: ExperimentStore
    roster: Roster
    agreement: Agreement

    @property
    def descriptor(self) -> Descriptor:
        return self.agreement.descriptor

    @property
    def legs(self) -> tuple[Leg, ...]:
        return self.agreement.legs

    @property
    def examples(self) -> int:
        return self.agreement.examples

    @property
    def threshold(self) -> int:
        """The fewest models in a secure sum of this generation."""
        return threshold(len(self.store.announcements), self.descriptor.minimum_cohort)

    @property
    def training(self) -> LocalTraining:
        return self.agreement.training
