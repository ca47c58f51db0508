"""What the policy lets the coordinator read, in plain words."""

from collections.abc import Iterator

from client_app.hospital.agreement.policy import Policy

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
