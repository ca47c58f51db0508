"""The interface of the training backends: what they take and return."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protocol.model_bytes import Arrays, Wire

from .routes import Positions, Work
from .stack import narrowed

# All models in one call, or one by one, the latter also with images in channels-last order.
Backend = Literal["auto", "batched", "loop", "loop-channels-last"]


@dataclass(frozen=True)
class LegMetrics:
    """Mean loss and accuracy of each hospital over its rounds of the leg.

    `members` are the positions in the work that the entries belong to; None means in order.
    """

    losses: Tensor
    accuracies: Tensor
    members: Positions | None = None

    def in_order(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return losses and accuracies in the work's order."""
        losses, accuracies = (
            column.cpu().double().numpy() for column in (self.losses, self.accuracies)
        )
        if self.members is None:
            return losses, accuracies
        order = np.argsort(self.members)
        return losses[order], accuracies[order]


class Training(Protocol):
    """Trains the models of a leg in place."""

    state: dict[str, Tensor]
    """What later legs depend on besides the stack; updated in place."""

    def train(self, work: Work, anchors: "Anchors") -> LegMetrics:
        """Train every model of `work` at its hospital."""


@dataclass
class Anchors:
    """FedProx's anchor of each hospital: the aggregate it received last.

    Hospitals that received the same aggregate share one copy; `number_of` is −1 before the first.
    """

    number_of: Positions
    aggregates: dict[int, dict[str, Tensor]] = field(default_factory=dict)

    @staticmethod
    def none(hospitals: int) -> "Anchors":
        return Anchors(np.full(hospitals, -1))

    def received(
        self, hospitals: Positions, parameters: Arrays, wire: Wire, device: torch.device
    ) -> None:
        """Record that hospitals received an aggregate; drop those no longer needed."""
        number = max(self.aggregates, default=-1) + 1
        self.aggregates[number] = {
            name: narrowed(torch.tensor(array, device=device), wire)
            for name, array in parameters.items()
        }
        self.number_of[hospitals] = number
        for unused in set(self.aggregates) - set(self.number_of.tolist()):
            del self.aggregates[unused]

    def of(self, hospital: int) -> dict[str, Tensor] | None:
        return self.aggregates.get(int(self.number_of[hospital]))

    def stacked(self, hospitals: Positions) -> "tuple[dict[str, Tensor], Tensor | None] | None":
        """Return the anchors of a stack of models, and which of these have one (None: all)."""
        numbers = self.number_of[hospitals]
        kinds, places = np.unique(numbers, return_inverse=True)
        if kinds[-1] < 0:
            return None
        if len(kinds) == 1:
            one = self.aggregates[int(kinds[0])]
            return {name: tensor.unsqueeze(0) for name, tensor in one.items()}, None
        # Hospitals without an anchor get another's as a placeholder, masked out by the caller.
        known = [self.aggregates[int(kind if kind >= 0 else kinds[-1])] for kind in kinds]
        rows = torch.from_numpy(places)
        stacked = {name: torch.stack([one[name] for one in known])[rows] for name in known[0]}
        return stacked, None if kinds[0] >= 0 else torch.from_numpy(numbers >= 0)
