"""Figures computed from patients: which may be added to secure sums, and only all together.

A figure leaves in a leg's sum only if every member of the cohort adds it; else the total of a few
would tell about those few. The closing sum may lack some of them, but not many. Members tell each
other which figures they add when they exchange key shares.
"""

from collections.abc import Collection, Mapping

from client_app.state.experiment_store import ExperimentStore
from protocol.sealing.bundle import from_bundle
from protocol.study.announced_policy import Metric

from .agreement.policy import Policy

Figures = Mapping[str, float]
_BITS: dict[str, int] = {"loss": 1, "accuracy": 2, "held_out_loss": 4, "held_out_accuracy": 8}
_CLOSING = 16
_METRICS: dict[str, Metric] = {
    "loss": "loss",
    "accuracy": "accuracy",
    "held_out_loss": "held-out",
    "held_out_accuracy": "held-out",
}


def allowed_figures(policy: Policy, held_out: int, minimum_cohort: int) -> bytes:
    """Return, as one byte, the figures that this hospital adds to sums.

    `held_out` is the number of its held-out examples, `minimum_cohort` the descriptor's.
    """
    metrics = set(policy.metrics)
    if held_out < policy.minimum_held_out:
        metrics.discard("held-out")
    allowed = sum(bit for name, bit in _BITS.items() if _METRICS[name] in metrics)
    # How few hospitals a closing total may be of is the descriptor's: all must decide alike.
    if "held-out" in metrics and minimum_cohort >= policy.minimum_cohort:
        allowed |= _CLOSING
    return bytes([allowed])


def who_adds_closing_figures(store: ExperimentStore, cohort: Collection[str]) -> list[str]:
    """Return the members of the cohort that add the final model's figures to the closing sum."""
    allowed = from_bundle(store.get("figures") or b"")
    return [name for name in cohort if int.from_bytes(allowed.get(name, b""), "big") & _CLOSING]


def shared_figures(store: ExperimentStore, cohort: Collection[str], figures: Figures) -> Figures:
    """Return the figures that every member of the cohort adds."""
    allowed = from_bundle(store.get("figures") or b"")
    common = 0xFF
    for name in cohort:
        common &= int.from_bytes(allowed.get(name, b""), "big")
    return {name: value for name, value in figures.items() if _BITS[name] & common}
