"""The intervals of the forest plot."""

import pytest

from server_app.pages.forest import wilson


@pytest.mark.parametrize(
    ("fraction", "count", "interval"),
    # Newcombe 1998, Statistics in Medicine 17, table I, method 3.
    [(81 / 263, 263, (0.2553, 0.3662)), (15 / 148, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611))],
)
def test_the_interval_is_wilson_s(
    fraction: float, count: int, interval: tuple[float, float]
) -> None:
    assert wilson(fraction, count) == pytest.approx(interval, abs=1e-4)
