"""Figures computed from patients: which may be added to secure sums, and only all together.

A figure leaves in a sum only if every member of the cohort adds it; else the total of a few would
tell about those few. Members tell each other which ones they add when they exchange key shares.
"""

from collections.abc import Collection, Mapping

from client_app.state.experiment_store import ExperimentStore
from protocol.sealing.bundle import from_bundle

from .agreement.policy import Metric, Policy

Figures = Mapping[str, float]
_BITS: dict[str, int] = {"loss": 1, "accuracy": 2, "held_out_loss": 4, "held_out_accuracy": 8}
_METRICS: dict[str, Metric] = {
    "loss": "loss",
    "accuracy": "accuracy",
    "held_out_loss": "held-out",
    "held_out_accuracy": "held-out",
}


def allowed_figures(policy: Policy, held_out: int) -> bytes:
    """Return, as one byte, the figures that this hospital adds to sums."""
    metrics = set(policy.metrics)
    if held_out < policy.minimum_held_out:
        metrics.discard("held-out")
    return bytes([sum(bit for name, bit in _BITS.items() if _METRICS[name] in metrics)])


def shared_figures(store: ExperimentStore, cohort: Collection[str], figures: Figures) -> Figures:
    """Return the figures that every member of the cohort adds."""
    allowed = from_bundle(store.get("figures") or b"")
    common = 0xFF
    for name in cohort:
        common &= int.from_bytes(allowed.get(name, b""), "big")
    return {name: value for name, value in figures.items() if _BITS[name] & common}
