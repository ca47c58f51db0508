"""The first model: the agreed one, whether the hospital builds it or is given it."""

from typing import Any

import pytest

from client_app.hospital.hospital import Hospital
from learning.settings import TrainingSettings
from learning.trainer import Network, TaskSpec
from protocol.descriptor import Descriptor
from protocol.messages import Announcement, Carries, Refusal
from protocol.model_bytes import ModelState
from protocol.randomness import shared_init_seed
from tests.client_app.small_hospital import (
    CLASSES,
    FIRST_SEED,
    OPTIMIZERS,
    SHAPE,
    TRAINING,
    Code,
    built_here,
    descriptor,
    leg,
    member,
    model,
    plain,
    remembered,
    set_up,
    trained,
    wired,
    with_value,
)

FROM_NOTHING = leg(carries=Carries.NOTHING)


def agreed(descriptor: Descriptor, memory: dict[str, bytes] | None = None) -> Hospital:
    here = member(memory=memory)
    assert isinstance(plain(here.answer(set_up(descriptor))), Announcement)
    return here


@pytest.mark.parametrize("chosen", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_first_model_that_is_built_is_the_one_that_would_be_given(chosen: dict[str, Any]) -> None:
    training = TRAINING | chosen
    builds = agreed(built_here(training=training))
    first = built_here(training=training).first_model
    receives = agreed(descriptor(training=training, first_model=first))

    built = trained(builds.answer(FROM_NOTHING)).payload
    given = trained(receives.answer(leg(wired(training, FIRST_SEED)))).payload
    # FedProx pulls towards the first model until there is an aggregate.
    then = leg(built, leg=2, carries=Carries.ENVELOPE)

    assert built == given
    assert trained(builds.answer(then)).payload == trained(receives.answer(then)).payload


def test_it_is_the_model_that_the_coordinator_builds() -> None:
    settings = TrainingSettings.parse(TRAINING, source="test")
    seed = shared_init_seed(bytes(32))
    network = Network(settings, TaskSpec(SHAPE, CLASSES), seed=seed)
    digest = ModelState(*network.arrays()).digest()

    assert trained(agreed(built_here(first_model=digest)).answer(FROM_NOTHING))


@pytest.mark.parametrize(
    "changes", [{"first_model": bytes(32)}, {"training_seed": bytes(31) + b"\x01"}]
)
def test_where_another_model_is_built_than_agreed_the_descriptor_is_refused(
    changes: dict[str, Any],
) -> None:
    memory: dict[str, bytes] = {}
    here = member(memory=memory)

    reply = here.answer(set_up(built_here(**changes)))

    assert plain(reply) == Refusal(code=Code.MODEL_MISMATCH)
    assert remembered(memory) == {}


def test_where_another_first_model_is_given_than_agreed_it_is_refused() -> None:
    memory: dict[str, bytes] = {}
    here = agreed(descriptor(), memory)
    before = dict(memory)

    for other in (with_value(3.0), model(FIRST_SEED)):
        assert plain(here.answer(leg(other))) == Refusal(code=Code.MODEL_MISMATCH)
    assert remembered(memory) == remembered(before)
    assert trained(here.answer(leg(model())))


def test_where_the_first_model_is_given_none_is_built() -> None:
    here = agreed(descriptor())

    assert plain(here.answer(FROM_NOTHING)) == Refusal(code=Code.AGAINST_SCHEDULE)


@pytest.mark.parametrize("init", ["shared", "own"])
def test_where_the_first_model_is_built_none_is_accepted(init: str) -> None:
    here = agreed(built_here(init=init))

    for payload in (model(FIRST_SEED), model()):
        assert plain(here.answer(leg(payload))) == Refusal(code=Code.AGAINST_SCHEDULE)
    assert trained(here.answer(FROM_NOTHING))
