"""Held-out patients stay held out: decided by a keyed hash of their identity, once."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learning.data.examples import DataError

KEY_BYTES = 32
_TAG_BYTES = 16


@dataclass
class HeldOut:
    """Decides who is held out, and remembers it. Whether others are added or removed is no matter.

    The key is the hospital's secret: nobody else can compute who is held out. `recorded` has the
    decision on every patient by a keyed hash, which does not show the patient's number.
    """

    key: bytes
    recorded: dict[str, bool] = field(default_factory=dict)

    def set_apart(
        self, identities: Sequence[str], groups: NDArray[np.int64] | None, fraction: float
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows to train on and those held out; new decisions are in `recorded`.

        The hash of a new patient is below `fraction` of its range, or not. Rows of one group go
        where those of them went that are recorded; in a new group one patient decides for all.
        """
        tags = [self.tag(identity) for identity in identities]
        members: dict[int, list[int]] = {}
        for row in range(len(tags)):
            members.setdefault(row if groups is None else int(groups[row]), []).append(row)
        held_out = np.zeros(len(tags), dtype=bool)
        for rows in members.values():
            known = [self.recorded[tags[row]] for row in rows if tags[row] in self.recorded]
            first = min(tags[row] for row in rows)
            decision = any(known) if known else self._below(first, fraction)
            for row in rows:
                held_out[row] = self.recorded.setdefault(tags[row], decision)
        if held_out.all() and len(held_out):
            raise DataError(
                f"all {len(held_out)} examples are held out (test-fraction {fraction}): add data"
            )
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)

    def tag(self, identity: str) -> str:
        """Return under what the decision on somebody is recorded."""
        return hmac.digest(self.key, identity.encode(), "sha256")[:_TAG_BYTES].hex()

    def _below(self, tag: str, fraction: float) -> bool:
        # Hashed again: the smallest of a group's tags is no draw from the whole range.
        drawn = hmac.digest(self.key, f"held out {tag}".encode(), "sha256")[:8]
        return int.from_bytes(drawn, "big") < fraction * 2**64


def identities(patients: Sequence[Sequence[str]], contents: Sequence[str]) -> list[str]:
    """Return whose each example is: its patient's first number, or without one its content.

    `patients` are the columns with patients' numbers.
    """
    numbers = zip(*patients, strict=True) if patients else [()] * len(contents)
    return [
        next((f"patient {number}" for number in row if number), content)
        for row, content in zip(numbers, contents, strict=True)
    ]


def row_contents(values: NDArray[np.floating[Any]], labels: NDArray[np.int64]) -> list[str]:
    """Return what makes two rows of a table equal."""
    pairs = zip(values, labels.tolist(), strict=True)
    return [f"row {row.tobytes().hex()} {label}" for row, label in pairs]
