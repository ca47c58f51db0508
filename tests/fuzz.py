"""The depth of fuzzing: 200 examples in the plain suite, as many as the profile says otherwise.

    @fuzz
    @given(altered_requests())
    def test_altered_requests_are_refused(data: bytes) -> None: ...

`make test-slow` and `make test-long` run the tests with this decorator once more, with the profiles
`more` (1,000 examples) and `thorough` (10,000).
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_PLAIN_EXAMPLES = 200

FUZZ = settings(
    max_examples=max(_PLAIN_EXAMPLES, settings().max_examples),
    suppress_health_check=list(HealthCheck),
)


def fuzz(test: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a Hypothesis test as a fuzz test and set its number of examples by the profile."""
    return pytest.mark.fuzz(FUZZ(test))
