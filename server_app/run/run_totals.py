"""What a run counts over its legs, for the summary."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from protocol.messages import Masked, Trained
from protocol.schedule import Ending
from strategies.session.observer import LegReport


@dataclass
class RunTotals:
    """Legs, bytes, missing hospitals and accuracies of a run; kept in the journal."""

    legs: int = 0
    endings: dict[Ending, int] = field(default_factory=lambda: dict.fromkeys(Ending, 0))
    bytes: dict[str, int] = field(default_factory=lambda: {"up": 0, "down": 0})
    readable: int = 0
    readable_hand_overs: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    lost_chains: int = 0
    missed_rounds: int = 0
    untrained: dict[str, int] = field(default_factory=dict)
    client_accuracies: list[float] = field(default_factory=list)
    held_out_accuracies: list[float] = field(default_factory=list)
    held_out: dict[str, float] | None = None  # totals over hospitals, from the closing secure sum

    def add(self, report: LegReport) -> None:
        """Count one leg."""
        self.endings[report.leg.ending] += 1
        self.lost_chains, self.missed_rounds = report.lost_chains, report.missed_rounds
        for name in report.missing:
            self.missing[name] = self.missing.get(name, 0) + 1
        for name, answer in report.answers.items():
            if isinstance(answer.reply, Masked | Trained) and answer.reply.untrained:
                self.untrained[name] = self.untrained.get(name, 0) + 1
            self.bytes["up"] += answer.bytes_up
            self.bytes["down"] += answer.bytes_down
            if isinstance(answer.reply, Trained) and not answer.reply.sealed:
                self.readable += 1
                self.readable_hand_overs += report.leg.ending is Ending.HAND_OVER

    def summary(self) -> dict[str, Any]:
        """Return the fields of summary.json that are counted."""
        hand_overs = self.endings[Ending.HAND_OVER]
        return {
            "mean_client_accuracy": mean(self.client_accuracies),
            "mean_held_out_accuracy": mean(self.held_out_accuracies),
            "held_out": self.held_out,
            "legs": self.legs,
            "hand_overs": hand_overs,
            "aggregations": self.endings[Ending.AGGREGATION],
            "bytes_up": self.bytes["up"],
            "bytes_down": self.bytes["down"],
            "sealed": self.readable_hand_overs == 0 if hand_overs else None,
            "readable_models": self.readable,
            "missing": self.missing,
            "lost_chains": self.lost_chains,
            "missed_rounds": self.missed_rounds,
            "untrained": self.untrained,
        }

    def to_state(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {
            "legs": self.legs,
            "endings": self.endings,
            "bytes": self.bytes,
            "readable": self.readable,
            "readable_hand_overs": self.readable_hand_overs,
            "missing": self.missing,
            "lost_chains": self.lost_chains,
            "missed_rounds": self.missed_rounds,
            "untrained": self.untrained,
            "client_accuracies": self.client_accuracies,
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "RunTotals":
        return RunTotals(
            legs=state["legs"],
            endings={Ending(ending): count for ending, count in state["endings"].items()},
            bytes=dict(state["bytes"]),
            readable=state["readable"],
            readable_hand_overs=state["readable_hand_overs"],
            missing=dict(state["missing"]),
            lost_chains=state["lost_chains"],
            missed_rounds=state["missed_rounds"],
            untrained=dict(state.get("untrained", {})),
            client_accuracies=list(state["client_accuracies"]),
        )


def mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
