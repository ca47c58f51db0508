"""One federation for all tests of a file: starting it takes longer than most experiments."""

from collections.abc import Iterator

import pytest

from tests.federation.federation import Federation, federation


@pytest.fixture(scope="module")
def shared_federation() -> Iterator[Federation]:
    with federation(leg_timeout=20.0, quorum_wait=60.0) as made:
        yield made


@pytest.fixture
def study(shared_federation: Federation) -> Iterator[Federation]:
    """The file's federation, all of it alive before and after each test."""
    shared_federation.revive()
    yield shared_federation
    shared_federation.revive()
