"""The noise: its distribution, its key, its rounding."""

import math

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import kstest

from learning.privacy import NoiseSource, NoiseStream, noised
from learning.privacy.noise import normal_rows

KEY = bytes(range(32))


def test_a_million_numbers_are_standard_normal() -> None:
    numbers = NoiseSource(KEY).stream("round", 0).normal(1_000_000).numpy()
    assert numbers.std() == pytest.approx(1, rel=0.005)
    assert abs(numbers.mean()) < 0.005
    assert kstest(numbers, "norm").pvalue > 0.001
    # Beyond four deviations: 63 of a million are expected, 8 the square root.
    assert 30 < (np.abs(numbers) > 4).sum() < 100


def test_numbers_follow_from_the_keystream_by_box_muller() -> None:
    cipher = Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(cipher.update(bytes(16)), dtype="<u8")
    first, second = ((int(word) % 2**53 + 1) / 2**53 for word in words)
    radius, angle = math.sqrt(-2 * math.log(first)), 2 * math.pi * second
    wanted = [radius * math.cos(angle), radius * math.sin(angle)]
    assert NoiseStream(KEY).normal(2).tolist() == pytest.approx(wanted, rel=1e-12)


def test_streams_differ_by_key_purpose_and_counter_only() -> None:
    def numbers(key: bytes, purpose: str, *counters: int) -> list[float]:
        return NoiseSource(key).stream(purpose, *counters).normal(3).tolist()

    names = [("round", 1), ("round", 2), ("average", 1), ("round", 1, 0)]
    drawn = [tuple(numbers(key, *name)) for key in (KEY, bytes(32)) for name in names]  # type: ignore[arg-type]
    assert len(set(drawn)) == len(drawn)
    assert numbers(KEY, "round", 1) == numbers(KEY, "round", 1)


def test_without_a_key_every_source_is_new() -> None:
    numbers = [tuple(NoiseSource().stream("round", 0).normal(2).tolist()) for _ in range(3)]
    assert len(set(numbers)) == 3


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, got 16"):
        NoiseSource(bytes(16))


@pytest.mark.parametrize("count", [1, 7, 70_000])
def test_rows_of_many_streams_are_those_of_each_alone(count: int) -> None:
    def streams() -> list[NoiseStream]:
        return [NoiseSource(KEY).stream("round", i) for i in range(3)]

    rows = normal_rows(streams(), count)
    assert rows.shape == (3, count)
    for row, stream in zip(rows, streams(), strict=True):
        torch.testing.assert_close(row, stream.normal(count), rtol=1e-14, atol=0)


@pytest.mark.parametrize("deviation", [1e-4, 0.7, 1.0, 300.0])
def test_noised_values_lie_on_a_grid_of_a_thousandth_of_the_deviation(deviation: float) -> None:
    values = {"w": torch.linspace(-3, 3, 999)}
    noise = NoiseSource(KEY).stream("round", 0).normal_like(values)
    released = noised(values, deviation, noise)["w"]
    grid = 2.0 ** (math.floor(math.log2(deviation)) - 10)
    assert deviation / 2048 < grid <= deviation / 1024
    assert torch.equal((released / grid).round() * grid, released)
    exact = values["w"].double() + deviation * noise["w"]
    assert float((released - exact).abs().max()) <= grid / 2
    # On the grid a number survives float32 unchanged, so that its low bits tell nothing.
    near = released[released.abs() < 8 * deviation]
    assert torch.equal(near.float().double(), near)
