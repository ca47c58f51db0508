"""What the policy lets the coordinator read, and whether it knows the policy."""

from collections.abc import Iterator

from client_app.configuration import Configuration
from client_app.hospital.agreement.policy import Policy
from client_app.hospital_folder import FolderError, HospitalFolder

from .finding import Finding


def check_disclosure(policy: Policy) -> Iterator[Finding]:
    """Report what leaves this hospital readable, and what can be reconstructed from it."""
    if policy.metrics:
        yield Finding(
            "disclosure",
            "warning",
            f"the coordinator may read {', '.join(policy.metrics)}: from such figures of models "
            "that it makes up it can reconstruct patients' records",
            "set `metrics = []` in [policy], unless you could show it the data",
        )
    if policy.plain_aggregation:
        yield Finding(
            "disclosure",
            "warning",
            "the coordinator may read the models that are sent for aggregation: records can be "
            "reconstructed from a model trained on few examples",
            "set `plain-aggregation = false` in [policy], unless you could show it the data",
        )
    if not policy.metrics and not policy.plain_aggregation:
        yield Finding("disclosure", "fine", "nothing that leaves is readable for the coordinator")


def check_announced(folder: HospitalFolder, configuration: Configuration) -> Iterator[Finding]:
    """Report a policy that has changed since the card was written: the coordinator plans by it."""
    try:
        card = folder.card(configuration.hospital.name)
    except FolderError as error:
        yield Finding("card", "warning", str(error))
        return
    if card is None or card.policy is None:
        return  # it was written by an older version; nothing is announced, and nothing is wrong
    try:
        is_same = configuration.policy.announced(card.policy.since).has_limits_of(card.policy)
    except ValueError:
        is_same = False
    if not is_same:
        yield Finding(
            "card",
            "warning",
            f"[policy] is not what your card of {card.policy.since} announces",
            "write it again with `feddc hospital card`, and send it to the coordinator",
        )
