"""A model as integers that can be added: fixed point, with its weight, norm and figures.

Sums are taken modulo 2⁶⁴. With a narrow wire type and equal weights, the parameters are summed
modulo 2³² instead, which halves the bytes. A value out of range is refused, never clipped.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocol.model_bytes import Arrays, ModelState
from protocol.model_size import Layout

from .secure_leg import SecureSumError

FIGURES = ("loss", "accuracy", "held_out_loss", "held_out_accuracy")
TAG_LIMBS = 4
MOST_WEIGHT = 2**16 - 1
LARGEST_FIGURE = 2.0**10
# Sums stay below 2⁶⁰ in absolute value: the tag is taken modulo 2⁶¹−1 and tells them all apart.
LARGEST_SUM = 2**60
_LARGEST_NARROW_SUM = 2**31 - 1
_NARROW_RANGE_BITS = 6  # parameters below 64 in absolute value
_FRACTION_BITS, _WEIGHTED_FRACTION_BITS, _NORM_BITS = 32, 24, 16
_AT_ONCE = 1 << 15  # numbers that are converted while they are in the processor's cache
T = TypeVar("T")
_AFTER_BUFFERS = 2 + 2 * len(FIGURES) + TAG_LIMBS  # weight, norm, figures, tag


@dataclass(frozen=True)
class Vector:
    """The integers of one member, of a sum, or of either under masks.

    `numbers` are the parameters. `extras` are buffers, weight, norm, figures and the tag's limbs.
    """

    numbers: NDArray[np.unsignedinteger[Any]]  # uint64, or uint32 where the wire type is narrow
    extras: NDArray[np.uint64]

    def add(self, other: "Vector") -> None:
        """Add another vector in place."""
        np.add(self.numbers, other.numbers, out=self.numbers)
        np.add(self.extras, other.extras, out=self.extras)

    def copy(self) -> "Vector":
        return Vector(self.numbers.copy(), self.extras.copy())

    def parts(self) -> tuple[memoryview, memoryview]:
        """Return the bytes, little-endian: numbers, then extras. They are not copied."""
        return self.numbers.view(np.uint8).data, self.extras.view(np.uint8).data

    def to_bytes(self) -> bytes:
        return b"".join(self.parts())

    @property
    def limbs(self) -> NDArray[np.uint64]:
        """The tag's limbs, as a view."""
        return self.extras[-TAG_LIMBS:]


class SumForm(ABC, Generic[T]):
    """What all vectors of one kind of sum have in common: their size, and what a sum stands for."""

    def __init__(self, numbers: int, dtype: np.dtype[Any], extras: int) -> None:
        self._numbers, self._dtype, self._extras = numbers, dtype, extras

    @property
    def length(self) -> int:
        """The bytes of every vector of this form."""
        return self._numbers * self._dtype.itemsize + self._extras * 8

    def zeros(self) -> Vector:
        return Vector(np.zeros(self._numbers, self._dtype), np.zeros(self._extras, "<u8"))

    def from_bytes(self, data: bytes | memoryview) -> Vector:
        """Return the vector of these bytes, which are not copied."""
        if len(data) != self.length:
            raise SecureSumError(f"a vector has {self.length} bytes here, got {len(data)}")
        end = self._numbers * self._dtype.itemsize
        numbers = np.frombuffer(data, self._dtype, count=self._numbers)
        return Vector(numbers, np.frombuffer(data, "<u8", offset=end))

    @abstractmethod
    def decode(self, total: Vector, survivors: int) -> T:
        """Return what a sum of so many vectors stands for; refuse an implausible sum."""


@dataclass(frozen=True)
class Mean:
    """What a sum says: the weighted mean of the models, and totals over the members.

    `figures` are means weighted like the models; a figure that was not added is absent.
    """

    model: ModelState
    weight: int
    mean_norm: float
    figures: Mapping[str, float] = field(default_factory=dict)


class VectorForm(SumForm[Mean]):
    """How the models of an experiment become vectors; equal on both sides.

    Parameters
    ----------
    parameters, buffers
        Names, shapes and types.
    members
        The generation's number of members: so many vectors can be added without overflow.
    weighted
        Whether models are multiplied by their number of examples (at most 65535).
    narrow
        Whether the agreed wire type is narrower than 32 bits.
    """

    def __init__(
        self,
        parameters: Layout,
        buffers: Layout,
        *,
        members: int,
        weighted: bool = False,
        narrow: bool = False,
    ) -> None:
        self._parameters, self._buffers = _ordered(parameters), _ordered(buffers)
        self._weighted = weighted
        self._fraction_bits = _WEIGHTED_FRACTION_BITS if weighted else _FRACTION_BITS
        self._bound = LARGEST_SUM // members
        self._number_bits, self._number_bound = self._fraction_bits, self._bound
        dtype: np.dtype[Any] = np.dtype("<u8")
        if narrow and not weighted:
            dtype = np.dtype("<u4")
            self._number_bound = _LARGEST_NARROW_SUM // members
            self._number_bits = max(0, self._number_bound.bit_length() - 1 - _NARROW_RANGE_BITS)
        super().__init__(_size(self._parameters), dtype, _size(self._buffers) + _AFTER_BUFFERS)

    @property
    def largest(self) -> float:
        """The largest absolute value that a parameter may have, with weight 1."""
        return self._number_bound / 2.0**self._number_bits

    # --- a member's model → integers --------------------------------------------------------------

    def encode(
        self,
        model: ModelState,
        *,
        weight: int = 1,
        figures: Mapping[str, float] | None = None,
        with_norm: bool = True,
    ) -> Vector:
        """Return a model, weighted, as integers; the tag's limbs are still 0.

        Without its norm where the model has noise: the norm would tell about the patients.
        """
        if not 1 <= weight <= (MOST_WEIGHT if self._weighted else 1):
            raise SecureSumError(f"weight {weight} is out of range")
        vector = self.zeros()
        numbers, extras = vector.numbers.view(_signed(self._dtype)), vector.extras.view("<i8")
        scale = weight * 2.0**self._number_bits
        _fill(numbers, self._parameters, model.parameters, scale, self._number_bound)
        scale = weight * 2.0**self._fraction_bits
        end = _fill(extras, self._buffers, model.buffers, scale, self._bound, exact=weight)
        model_norm = norm(model.parameters) if with_norm else 0.0
        values = self._after_buffers(model_norm, weight, figures or {})
        extras[end : end + len(values)] = values
        if max(map(abs, values)) > self._bound:
            raise SecureSumError("the model's norm is out of range")
        return vector

    def _after_buffers(
        self, model_norm: float, weight: int, figures: Mapping[str, float]
    ) -> list[int]:
        unit = 2**self._fraction_bits
        values = [weight, round(model_norm * 2**_NORM_BITS)]
        for name in FIGURES:
            figure = figures.get(name)
            values += [0, 0] if figure is None else [1, round(weight * limited(figure) * unit)]
        return values

    # --- a sum → the mean -------------------------------------------------------------------------

    def decode(self, total: Vector, survivors: int) -> Mean:
        """Return the mean that a sum of so many vectors stands for; refuse an implausible sum."""
        numbers, extras = total.numbers.view(_signed(self._dtype)), total.extras.view("<i8")
        _check_range(numbers, survivors * self._number_bound, "the sum")
        _check_range(extras, survivors * self._bound, "the sum")
        rest = [int(value) for value in extras[-_AFTER_BUFFERS:]]
        weight, norms = rest[:2]
        most = MOST_WEIGHT if self._weighted else 1
        if not survivors <= weight <= survivors * most:
            raise SecureSumError(f"a weight of {weight} is impossible for {survivors} members")
        unit = 2.0**self._fraction_bits
        figures = {}
        for place, name in enumerate(FIGURES):
            count, value = rest[2 + 2 * place : 4 + 2 * place]
            if not 0 <= count <= survivors:
                raise SecureSumError(f"{name} was added by {count} of {survivors} members")
            # Fewer add a figure if a policy has become stricter since they agreed on it.
            if count == survivors:
                figures[name] = value / (weight * unit)
        model = ModelState(
            _read(numbers, self._parameters, weight * 2.0**self._number_bits, weight),
            _read(extras, self._buffers, weight * unit, weight),
        )
        return Mean(model, weight, norms / (survivors * 2.0**_NORM_BITS), figures)


def norm(arrays: Arrays) -> float:
    """Return the Euclidean norm over all arrays."""
    parts: Iterator[NDArray[Any]] = (
        array.ravel()[start : start + _AT_ONCE]
        for array in arrays.values()
        for start in range(0, array.size, _AT_ONCE)
    )
    return math.sqrt(sum(float(part @ part) for part in parts))


def _ordered(layout: Layout) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
    return [(name, *layout[name]) for name in sorted(layout)]


def _size(entries: list[tuple[str, tuple[int, ...], np.dtype[Any]]]) -> int:
    return sum(math.prod(shape) for _, shape, _ in entries)


def _signed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"<i{dtype.itemsize}")


def _fill(
    out: NDArray[Any],
    entries: list[tuple[str, tuple[int, ...], np.dtype[Any]]],
    arrays: Arrays,
    scale: float,
    bound: int,
    *,
    exact: int = 1,
) -> int:
    """Write arrays as integers: floating-point numbers times `scale`, integers times `exact`."""
    start = 0
    for name, shape, dtype in entries:
        end = start + math.prod(shape)
        _fill_array(out[start:end], arrays[name].ravel(), dtype, scale, bound, exact, name)
        start = end
    return start


def _fill_array(
    out: NDArray[Any],
    values: NDArray[Any],
    dtype: np.dtype[Any],
    scale: float,
    bound: int,
    exact: int,
    name: str,
) -> None:
    is_float = np.issubdtype(dtype, np.floating)
    for start in range(0, values.size, _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        if is_float:
            scaled: NDArray[Any] = np.multiply(part, scale, dtype=np.float64)
            np.rint(scaled, out=scaled)
        else:
            scaled = part.astype(np.int64)
            _check_range(scaled, bound // exact, name)
            scaled *= exact
        _check_range(scaled, bound, name)
        out[start : start + _AT_ONCE] = scaled


def _check_range(values: NDArray[Any], bound: int, name: str) -> None:
    # Written so that NaN fails; no `abs`, which the most negative integer survives.
    if values.size and not (values.max() <= bound and values.min() >= -bound):
        raise SecureSumError(f"{name} has values that are out of range for a secure sum")


def _read(
    numbers: NDArray[Any],
    entries: list[tuple[str, tuple[int, ...], np.dtype[Any]]],
    scale: float,
    weight: int,
) -> Arrays:
    arrays: Arrays = {}
    start = 0
    for name, shape, dtype in entries:
        end = start + math.prod(shape)
        part = numbers[start:end]
        if np.issubdtype(dtype, np.floating):
            mean: NDArray[Any] = part / scale
        else:
            mean = np.rint(part / weight)
        arrays[name] = np.asarray(mean.astype(dtype).reshape(shape))
        start = end
    return arrays


def limited(figure: float) -> float:
    """Limit a figure, which is not part of the model: training may have diverged."""
    if math.isnan(figure):
        return LARGEST_FIGURE
    return max(-LARGEST_FIGURE, min(LARGEST_FIGURE, figure))
