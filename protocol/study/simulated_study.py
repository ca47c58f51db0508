"""The study of a simulation: identities for simulated hospitals, all derived from the seed.

These keys protect nothing. They let simulated hospitals run the same code as real ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from protocol.randomness import derive_seed
from protocol.sealing.keys import Identity

from .roster import Member, Roster

_STUDY = "simulation"


@dataclass(frozen=True)
class SimulatedStudy:
    """The roster of a simulation and the private identities behind it."""

    roster: Roster
    coordinator: Identity
    identities: dict[str, Identity]


def simulated_study(seed: int, names: Iterable[str]) -> SimulatedStudy:
    """Make the study of these hospitals; it follows from the seed and the names alone."""
    coordinator = Identity.from_bytes(derive_seed(seed, "identity of the coordinator"))
    identities = {
        name: Identity.from_bytes(derive_seed(seed, f"identity of hospital {name}"))
        for name in names
    }
    members = [Member(name, identity.public) for name, identity in identities.items()]
    roster = Roster.make(_STUDY, 1, coordinator.public, members)
    return SimulatedStudy(roster, coordinator, identities)
