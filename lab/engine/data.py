"""All hospitals' training examples in one table, and the mini-batches drawn from it."""

from collections.abc import Sequence
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learning.data import Examples
from protocol.randomness import draw_batches

from .routes import Positions

_ROUNDS_AHEAD = 128
_NUMBERS_AHEAD = 2**20  # marks in memory at once
_BLOCKS = 4


class HospitalData:
    """The hospitals' examples, padded to the largest hospital, and the mini-batch of each round."""

    def __init__(
        self,
        examples: Sequence[Examples],
        *,
        batch_size: int,
        training_seed: bytes,
        device: torch.device,
        dtype: torch.dtype,
        memory_format: torch.memory_format,
    ) -> None:
        self.sizes = np.array([len(each) for each in examples])
        self.batch_sizes = (
            np.minimum(self.sizes, batch_size) if batch_size else np.array(self.sizes)
        )
        longest = int(self.sizes.max())
        self.labels = torch.zeros((len(examples), longest), dtype=torch.int64, device=device)
        shape = examples[0].features.shape[1:]
        self.features = _table(len(examples), longest, shape, memory_format).to(device, dtype)
        for position, each in enumerate(examples):
            self.features[position, : len(each)] = torch.from_numpy(each.features).to(device, dtype)
            self.labels[position, : len(each)] = torch.from_numpy(each.labels).to(device)
        self._seed = training_seed
        self._whole_sets = bool((self.batch_sizes == self.sizes).all())
        self._equal_batches = bool((self.batch_sizes == self.batch_sizes[0]).all())
        self._ahead = int(np.clip(_NUMBERS_AHEAD // max(1, self.sizes.sum()), 1, _ROUNDS_AHEAD))
        self._blocks: dict[int, NDArray[np.int64]] = {}
        self._drawing = Lock()

    def one(self, hospital: int, round_: int) -> tuple[Tensor, Tensor]:
        """Return one hospital's batch."""
        size = int(self.batch_sizes[hospital])
        if size == self.sizes[hospital]:
            return self.features[hospital, :size], self.labels[hospital, :size]
        rows = torch.from_numpy(self._rows(round_)[hospital, :size]).to(self.labels.device)
        return self.features[hospital][rows], self.labels[hospital][rows]

    def many(self, hospitals: Positions, round_: int) -> tuple[Tensor, Tensor]:
        """Return batches stacked as (hospitals, examples, …), padded to the longest batch."""
        who = torch.from_numpy(hospitals).to(self.labels.device)
        longest = int(
            self.batch_sizes[0] if self._equal_batches else self.batch_sizes[hospitals].max()
        )
        if self._whole_sets:
            features, labels = self.features, self.labels
            if longest < labels.shape[1]:
                features, labels = features[:, :longest], labels[:, :longest]
            return features.index_select(0, who), labels.index_select(0, who)
        rows = torch.from_numpy(self._rows(round_)[hospitals, :longest]).to(who.device)
        places = (who[:, None], rows)
        return self.features[places], self.labels[places]

    def weights(self, hospitals: Positions) -> Tensor | None:
        """Return the weight of each example of `many`; None where all batches have one size."""
        if self._equal_batches:
            return None
        sizes = self.batch_sizes[hospitals]
        if (sizes == sizes[0]).all():
            return None
        real = np.arange(sizes.max())[None, :] < sizes[:, None]
        return torch.from_numpy(real / sizes[:, None]).to(self.features.device, self.features.dtype)

    def _rows(self, round_: int) -> NDArray[np.int64]:
        block, place = divmod(round_, self._ahead)
        with self._drawing:  # the first of several threads draws, the others use its table
            table = self._blocks.pop(block) if block in self._blocks else self._drawn(block)
            self._blocks[block] = table  # least recently used first
            if len(self._blocks) > _BLOCKS:
                del self._blocks[next(iter(self._blocks))]
        rows: NDArray[np.int64] = table[place]
        return rows

    def _drawn(self, block: int) -> NDArray[np.int64]:
        """Draw the batches of several rounds for all hospitals: (rounds, hospitals, examples)."""
        rounds = range(block * self._ahead, (block + 1) * self._ahead)
        longest = int(self.batch_sizes.max())
        table = np.zeros((len(rounds), len(self.sizes), longest), dtype=np.int64)
        for size in np.unique(self.sizes):
            who = np.flatnonzero(self.sizes == size)
            batch = int(self.batch_sizes[who[0]])
            if batch == size:
                table[:, who, :batch] = np.arange(batch)
                continue
            names = [(int(position), round_) for round_ in rounds for position in who]
            drawn = draw_batches(self._seed, names, int(size), batch)
            table[:, who, :batch] = drawn.reshape(len(rounds), len(who), batch)
        return table


def _table(
    hospitals: int, longest: int, shape: Sequence[int], memory_format: torch.memory_format
) -> Tensor:
    if memory_format is torch.channels_last and len(shape) == 3:
        channels, height, width = shape
        # Each hospital's rows are images with the channels last in memory.
        return torch.zeros(hospitals, longest, height, width, channels).permute(0, 1, 4, 2, 3)
    return torch.zeros(hospitals, longest, *shape)
