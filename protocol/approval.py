"""What a hospital's approval covers: the settings of an experiment, whoever the members are."""

from .canonical import canonical_bytes
from .descriptor import Descriptor
from .study.roster import Roster, fingerprint


def approval_fingerprint(descriptor: Descriptor, roster: Roster) -> str:
    """Return the fingerprint of an experiment as hospitals approve it.

    It covers study, coordinator and every setting, but not the roster: an approval counts in later
    generations too.
    """
    settings = descriptor.model_copy(update={"roster": bytes(32)})
    return fingerprint(
        canonical_bytes(
            {
                "approval": 1,
                "study": roster.study,
                "coordinator": roster.coordinator.hex(),
                "descriptor": settings.to_bytes().hex(),
            }
        )
    )
