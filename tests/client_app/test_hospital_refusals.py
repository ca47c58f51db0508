"""The hospital: what it refuses, and that refusing changes nothing.

The tables of refused requests and descriptors are in tests/attacks, where they also run against a
real agent.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from client_app.hospital.agreement.policy import Policy
from client_app.hospital.hospital import Hospital
from client_app.state.store import MappingStore
from learning.data import Examples, Partition
from protocol.messages import Carries, Refusal, RefusalCode, SetUp
from protocol.model_bytes import ModelState
from tests.attacks.canaries import opened
from tests.attacks.refused_descriptors import DESCRIPTORS
from tests.attacks.refused_requests import REQUESTS
from tests.attacks.study import POLICY, VICTIM, Experiment, in_process, partition, whole_study
from tests.client_app.small_hospital import (
    CLASSES,
    NAME,
    WITH_BUFFERS,
    Code,
    descriptor,
    examples,
    hospital,
    leg,
    member,
    model,
    plain,
    remembered,
    set_up,
    trained,
    with_value,
)


@cache
def running() -> Experiment:
    """Return an experiment in which the victim has already opened an envelope."""
    study = whole_study()
    policy = Policy.parse(POLICY | {"models": ["mlp", "resnet18"]}, source="test")
    in_process(study, VICTIM, partition(VICTIM, 1), policy)
    experiment = study.experiment()
    experiment.leg()
    experiment.leg()
    return experiment


def assert_refused_without_a_trace(data: bytes, code: RefusalCode) -> None:
    experiment = running()
    study = experiment.study
    victim, before = study.hospitals[VICTIM], study.memories[VICTIM]
    assert isinstance(victim, Hospital)
    memory, undisturbed = dict(before), victim.with_store(MappingStore(dict(before)))
    here = victim.with_store(MappingStore(memory))

    assert plain(here.answer(data)) == Refusal(code=code)

    assert remembered(memory) == remembered(before)
    request = experiment.request(VICTIM)
    one, other = (trained(each.answer(study.sign(request))) for each in (here, undisturbed))
    # Envelopes of the same model are never equal; what is in them is.
    recipient = request.recipient or ""
    left, right = (opened(experiment, r.payload, request.leg, recipient) for r in (one, other))
    assert left.to_bytes() == right.to_bytes()


@pytest.mark.parametrize("case", REQUESTS)
def test_a_refused_request_changes_nothing(case: str) -> None:
    code, made = REQUESTS[case]
    request = made(running(), running().request(VICTIM))
    data = request if isinstance(request, bytes) else running().study.sign(request)

    assert_refused_without_a_trace(data, code)


@pytest.mark.parametrize("case", DESCRIPTORS)
def test_a_refused_descriptor_changes_nothing(case: str) -> None:
    code, change = DESCRIPTORS[case]
    study = running().study
    honest = running().descriptor.model_copy(update={"experiment": "new"})
    request = SetUp(experiment=honest.experiment, payload=change(study, honest))

    assert_refused_without_a_trace(study.sign(request), code)


def test_an_empty_request_changes_nothing() -> None:
    # Not in the table: the agent's HTTP layer rejects an empty body itself.
    assert_refused_without_a_trace(b"", Code.MALFORMED)


# In simulations models may be handed over readable, and no keys are made.
READABLE: dict[str, tuple[RefusalCode, Callable[[], bytes]]] = {
    "a recipient that is not on the roster": (
        Code.UNKNOWN_RECIPIENT,
        lambda: leg(model(), recipient="mallory"),
    ),
    "a recipient in other capitals": (
        Code.UNKNOWN_RECIPIENT,
        lambda: leg(model(), recipient="East"),
    ),
    "not a number, handed over": (
        Code.NOT_FINITE,
        lambda: leg(with_value(np.nan), carries=Carries.ENVELOPE),
    ),
    "optimiser state that plain SGD does not have": (
        Code.MODEL_MISMATCH,
        lambda: leg(adam(), carries=Carries.ENVELOPE),
    ),
}


@pytest.mark.parametrize("case", READABLE)
def test_a_readable_hand_over_is_checked_like_a_sealed_one(case: str) -> None:
    code, request = READABLE[case]
    memory: dict[str, bytes] = {}
    here = hospital(memory)
    before = dict(memory)

    assert plain(here.answer(request())) == Refusal(code=code)
    assert remembered(memory) == remembered(before)


def adam(**changes: Any) -> ModelState:
    optimizer = {
        f"{moment}/{name}": np.zeros_like(array)
        for moment in "mv"
        for name, array in model().parameters.items()
    } | {"step": np.array(0)}
    left = {name: array for name, array in (optimizer | changes).items() if array is not None}
    return ModelState(model().parameters, {}, left)


ADAM_REFUSED: dict[str, tuple[RefusalCode, Callable[[], ModelState]]] = {
    "no optimiser state": (Code.MODEL_MISMATCH, lambda: ModelState(model().parameters)),
    "a moment less": (Code.MODEL_MISMATCH, lambda: adam(**{"m/output.bias": None})),
    "a tensor more": (Code.MODEL_MISMATCH, lambda: adam(extra=np.array(1.0))),
    "momentum instead": (
        Code.MODEL_MISMATCH,
        lambda: adam(**{"momentum/output.bias": np.zeros(CLASSES)}),
    ),
    "a moment of another shape": (
        Code.MODEL_MISMATCH,
        lambda: adam(**{"m/output.bias": np.zeros(CLASSES + 1)}),
    ),
    "a fractional step": (Code.MODEL_MISMATCH, lambda: adam(step=np.array(0.0))),
    "several steps": (Code.MODEL_MISMATCH, lambda: adam(step=np.zeros(2, np.int64))),
    "a moment that is not finite": (
        Code.NOT_FINITE,
        lambda: adam(**{"v/output.bias": np.full(CLASSES, np.inf)}),
    ),
}


@pytest.mark.parametrize(("code", "sent"), ADAM_REFUSED.values(), ids=ADAM_REFUSED)
def test_a_handed_over_model_has_exactly_its_optimizers_state(
    code: RefusalCode, sent: Callable[[], ModelState]
) -> None:
    here = hospital(optimizer="adam")

    assert trained(here.answer(leg(adam(), carries=Carries.ENVELOPE)))
    reply = here.answer(leg(sent(), leg=2, carries=Carries.ENVELOPE))
    assert plain(reply) == Refusal(code=code)


def test_running_statistics_that_are_not_finite_are_refused() -> None:
    good = model(**WITH_BUFFERS)
    bad = ModelState(good.parameters, good.buffers | {"norm1.running_var": np.array([1, np.nan])})
    here = hospital(**WITH_BUFFERS)

    assert plain(here.answer(leg(bad))) == Refusal(code=Code.NOT_FINITE)
    assert trained(here.answer(leg(good)))


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 0], [0, 0, 0, 0, 0]])
def test_another_number_of_classes_than_agreed_is_refused_whatever_labels_are_here(
    labels: list[int],
) -> None:
    own = Examples(examples(5, 1).features, np.array(labels))
    here = member(partition=Partition(NAME, own, own, ("a", "b", "c", "d")))

    assert plain(here.answer(set_up(descriptor()))) == Refusal(code=Code.DESCRIPTOR_REFUSED)


def test_before_anything_is_agreed_every_leg_is_refused_unread() -> None:
    memory: dict[str, bytes] = {}
    here = member(memory=memory)

    for payload in (model(), b"junk"):
        assert plain(here.answer(leg(payload))) == Refusal(code=Code.UNKNOWN_EXPERIMENT)
    assert remembered(memory) == {}


def test_every_code_of_the_closed_list_has_a_case() -> None:
    shown = {entry[0] for table in (REQUESTS, DESCRIPTORS) for entry in table.values()}
    elsewhere = {
        Code.KEYS_REFUSED,  # test_evil_coordinator_keys.py
        Code.NOT_SET_UP,
        Code.TOO_MANY_TO_ONE,  # test_hospital_policy.py
        Code.ROLLED_BACK,  # test_rollback.py
        Code.WAITING_FOR_APPROVAL,  # test_approval.py
        Code.REJECTED,
        Code.DISK_FULL,  # test_disk_space.py
        Code.INTERNAL_ERROR,  # test_hospital_hostile_input.py
        Code.COHORT_REFUSED,  # test_hospital_secure_sum.py
        Code.SUM_REFUSED,
        Code.SURVIVORS_REFUSED,
        Code.SHARES_REFUSED,
        Code.OUT_OF_RANGE,
        Code.TOO_LARGE,  # test_agent_requests.py: refused before a hospital sees it
    }

    assert shown | elsewhere == set(RefusalCode)
    assert not shown & elsewhere
