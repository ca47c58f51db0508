"""Figures of the final model on held-out examples: totals over hospitals, as integers to add up."""

from dataclasses import dataclass

import numpy as np

from .secure_leg import SecureSumError
from .vector import LARGEST_SUM, TAG_LIMBS, SumForm, Vector, limited

_LOSS_UNIT = 2**16


@dataclass(frozen=True)
class HeldOutTotals:
    """What one hospital adds, or the total over `hospitals` of them.

    `loss` is the sum of the examples' losses; `examples` and `correct` count by class.
    """

    hospitals: int
    loss: float
    examples: tuple[int, ...]
    correct: tuple[int, ...]

    @property
    def count(self) -> int:
        return sum(self.examples)

    @property
    def mean_loss(self) -> float:
        return self.loss / self.count

    @property
    def accuracy(self) -> float:
        return sum(self.correct) / self.count

    @property
    def balanced_accuracy(self) -> float:
        """The mean accuracy over the classes that occur."""
        pairs = zip(self.correct, self.examples, strict=True)
        return float(np.mean([correct / count for correct, count in pairs if count]))


class HeldOutForm(SumForm[HeldOutTotals | None]):
    """How totals become vectors: hospitals, loss × 2¹⁶, correct by class, examples by class."""

    def __init__(self, classes: int, *, members: int) -> None:
        super().__init__(0, np.dtype("<u8"), 2 + 2 * classes + TAG_LIMBS)
        self._classes, self._bound = classes, LARGEST_SUM // members

    def encode(self, totals: HeldOutTotals | None) -> Vector:
        """Return one hospital's totals; zeros if it adds none, which does not show in a sum."""
        vector = self.zeros()
        if totals is not None:
            loss = limited(totals.mean_loss) * totals.count
            values = [1, round(loss * _LOSS_UNIT), *totals.correct, *totals.examples]
            if max(map(abs, values)) > self._bound:
                raise SecureSumError("there are too many held-out examples for a secure sum")
            vector.extras.view("<i8")[: len(values)] = values
        return vector

    def decode(self, total: Vector, survivors: int) -> HeldOutTotals | None:
        """Return what a sum says, or None if nobody has added figures; refuse what can't be."""
        hospitals, loss, *counts = map(int, total.extras.view("<i8")[:-TAG_LIMBS])
        correct, examples = counts[: self._classes], counts[self._classes :]
        most = survivors * self._bound
        pairs = zip(correct, examples, strict=True)
        if (
            not hospitals <= min(survivors, sum(examples))
            or not all(0 <= right <= count <= most for right, count in pairs)
            or (hospitals <= 0 and any((hospitals, loss, *counts)))
        ):
            raise SecureSumError(f"impossible totals of {hospitals} hospitals")
        if not hospitals:
            return None
        return HeldOutTotals(hospitals, loss / _LOSS_UNIT, tuple(examples), tuple(correct))
