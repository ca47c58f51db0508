"""Mutations of bytes, and what must hold for each: it is refused, quickly, and never a crash."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tests.little_work import with_little_work


def refuses(read: Callable[[], object], error: type[ValueError]) -> None:
    """Fails for acceptance, for any other exception, and for more than a little work."""

    def refused() -> None:
        with pytest.raises(error):
            read()

    with_little_work(refused)


@dataclass(frozen=True)
class Sample:
    """Valid bytes and where their parts end."""

    data: bytes
    ends: tuple[int, ...]

    def parts(self) -> list[bytes]:
        starts = (0, *self.ends[:-1])
        return [self.data[start:end] for start, end in zip(starts, self.ends, strict=True)]


@st.composite
def mutated(draw: st.DrawFn, samples: Sequence[Sample]) -> bytes:
    """Something made of valid bytes that is itself none of them."""
    one, other = draw(st.sampled_from(samples)), draw(st.sampled_from(samples))
    data = draw(st.sampled_from(MUTATIONS))(draw, one, other)
    assume(data not in {sample.data for sample in samples})
    return data


def _flip(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    """One to three bits, each anywhere in a part: small parts are hit as often as large ones."""
    data = bytearray(one.data)
    for _number in range(draw(st.integers(1, 3))):
        part = draw(st.integers(0, len(one.ends) - 1))
        start = one.ends[part - 1] if part else 0
        data[draw(st.integers(start, one.ends[part] - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


def _truncate(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    return one.data[: draw(_cuts(one))]


def _behead(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    return one.data[draw(_cuts(one)) :]


def _extend(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    at = draw(_cuts(one))
    return one.data[:at] + draw(st.binary(min_size=1, max_size=200)) + one.data[at:]


def _remove(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    at = draw(_cuts(one))
    return one.data[:at] + one.data[at + draw(st.integers(1, 100)) :]


def _splice(draw: st.DrawFn, one: Sample, other: Sample) -> bytes:
    return one.data[: draw(_cuts(one))] + other.data[draw(_cuts(other)) :]


def _exchange_parts(draw: st.DrawFn, one: Sample, other: Sample) -> bytes:
    return b"".join(
        draw(st.sampled_from(pair)) for pair in zip(one.parts(), other.parts(), strict=True)
    )


def _shuffle_parts(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    return b"".join(draw(st.permutations(one.parts())))


def _overwrite(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    """A part becomes zeros, ones or noise of the same length."""
    parts = one.parts()
    part = draw(st.integers(0, len(parts) - 1))
    length = len(parts[part])
    noise = draw(st.randoms(use_true_random=False)).randbytes(length)
    parts[part] = draw(st.sampled_from([bytes(length), b"\xff" * length, noise]))
    return b"".join(parts)


def _repeat(draw: st.DrawFn, one: Sample, other: Sample) -> bytes:
    return draw(st.sampled_from([one.data * 2, one.data + other.data, one.data[::-1]]))


def _noise(draw: st.DrawFn, one: Sample, _: Sample) -> bytes:
    length = draw(st.integers(0, 2 * len(one.data)))
    return draw(st.randoms(use_true_random=False)).randbytes(length)


def _cuts(sample: Sample) -> st.SearchStrategy[int]:
    return st.integers(0, len(sample.data)) | st.sampled_from([0, *sample.ends])


MUTATIONS = (
    _flip,
    _truncate,
    _behead,
    _extend,
    _remove,
    _splice,
    _exchange_parts,
    _shuffle_parts,
    _overwrite,
    _repeat,
    _noise,
)
