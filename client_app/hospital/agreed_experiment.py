"""An experiment that this hospital has agreed to."""

from dataclasses import dataclass

from client_app.state.experiment_store import ExperimentStore
from protocol.descriptor import Descriptor
from protocol.study.roster import Roster

from .local_training import LocalTraining


@dataclass(frozen=True)
class AgreedExperiment:
    """What was agreed, what is stored about it, and the members and keys of one generation."""

    hospital: str  # the name of this hospital
    store: ExperimentStore
    descriptor: Descriptor
    roster: Roster
    training: LocalTraining
