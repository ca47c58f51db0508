"""What attacks share: a siege by an evil coordinator, and silence while thousands are refused."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.attacks.siege import MAXIMUM, Siege
from tests.attacks.study import VICTIM, real_agent, whole_study


@pytest.fixture(scope="module")
def siege() -> Iterator[Siege]:
    """A study whose victim is a real agent, one for all tests of a file."""
    study = whole_study()
    settings: dict[str, Any] = {"maximum_request_bytes": MAXIMUM, "models": '["mlp", "resnet18"]'}
    with real_agent(study, VICTIM, **settings) as agent:
        yield Siege(study, agent)


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
