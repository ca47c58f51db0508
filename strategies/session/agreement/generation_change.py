"""A new roster in a running experiment: who agrees to it, and the generation that follows."""

import math
from collections.abc import Mapping
from logging import WARNING

from operation.flower.logger import log
from protocol.approval import approval_fingerprint
from protocol.study.roster import Roster
from strategies.identifiers import HospitalName
from strategies.session.generation import Generation
from strategies.session.sealed_study import SealedStudy
from strategies.session.storage.snapshot import NextGeneration
from strategies.settings import Weighting

from .approval import WAITING, NewcomerWait
from .set_up import collect_agreements, set_up


class GenerationChange:
    """Opens generations. `next` is the one that is being opened, and is saved with the state."""

    def __init__(self, study: SealedStudy, weighting: Weighting, timeout: float) -> None:
        self.next: NextGeneration | None = None
        self.staying_out: Mapping[str, str] = {}
        self._study, self._weighting, self._timeout = study, weighting, timeout
        self._newcomers = NewcomerWait(study.clock, study.approval_wait)

    def begin(self, present: Generation) -> bool:
        """If there is a new roster that enough members agree to, prepare its generation."""
        roster = self._study.newest_roster()
        if roster is None or roster.generation <= present.members.roster.generation:
            return False
        if not self._newcomers.is_due(roster.generation):
            return False
        everybody = present.members.of(roster)
        everybody.present()
        descriptor = present.descriptor.model_copy(update={"roster": roster.digest})
        refusals = collect_agreements(everybody, descriptor, timeout=self._timeout)
        if late := self._newcomers.late(present.members, roster, refusals):
            self._put_off(roster.generation, late, approval_fingerprint(descriptor, roster))
            return False
        names = tuple(name for name in everybody.names if not refusals[name])
        self.staying_out = {name: why for name, why in refusals.items() if why}
        if not self._has_quorum(roster, present, len(names), len(everybody)):
            return False
        self.next = NextGeneration(roster, names)
        return True

    def open(self, present: Generation) -> Generation:
        """Have the members of the next generation make their keys, and return it."""
        if self.next is None:
            raise ValueError("no generation was prepared")
        roster = self.next.roster
        members = present.members.of(roster, self.next.names)
        members.present()
        descriptor = present.descriptor.model_copy(update={"roster": roster.digest})
        opened = set_up(members, descriptor, self._study, self._weighting, timeout=self._timeout)
        self.next = None
        return opened

    def _has_quorum(self, roster: Roster, present: Generation, agreed: int, asked: int) -> bool:
        least = present.descriptor.minimum_cohort if present.is_secure else 2
        needed = max(least, math.ceil(self._study.quorum * asked))
        if agreed >= needed:
            return True
        log(
            WARNING,
            "generation %d can't begin, %d of %d have agreed and %d are needed: %s",
            roster.generation,
            agreed,
            asked,
            needed,
            "; ".join(f"{name}: {why}" for name, why in self.staying_out.items()),
        )
        return False

    def _put_off(self, generation: int, late: list[HospitalName], fingerprint: str) -> None:
        log(WARNING, "generation %d waits for approval by %s", generation, ", ".join(late))
        self._study.observer.waiting_for_approval(dict.fromkeys(late, WAITING), fingerprint)
