"""The hospital: what it evaluates on held-out data, and which metrics it sends."""

from typing import Any

import numpy as np
import pytest

from learning.data import Partition
from protocol.messages import Announcement, Carries, Closed
from protocol.model_bytes import ModelState
from tests.client_app.small_hospital import (
    EVERY_SECOND_LEG_AGGREGATES,
    NAME,
    PARTITIONS,
    built_here,
    close,
    descriptor,
    examples,
    hospital,
    leg,
    member,
    model,
    plain,
    set_up,
    trained,
)


def held_out_by_hand(state: ModelState, partition: Partition) -> tuple[float, float]:
    """Return loss and accuracy of the two-layer network, computed in NumPy."""
    p: Any = state.parameters
    x = partition.held_out.features.astype(np.float64).reshape(len(partition.held_out), -1)
    hidden = np.maximum(x @ p["linear1.weight"].T + p["linear1.bias"], 0)
    scores = hidden @ p["output.weight"].T + p["output.bias"]
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    right = chances[np.arange(len(x)), partition.held_out.labels]
    accuracy = float((scores.argmax(axis=1) == partition.held_out.labels).mean())
    return float(-np.log(right).mean()), accuracy


@pytest.mark.parametrize(("number", "recipient"), [(3, "east"), (2, None)])
def test_an_aggregate_is_evaluated_as_it_came_on_held_out_data(
    number: int, recipient: str | None
) -> None:
    here = hospital(schedule=EVERY_SECOND_LEG_AGGREGATES)
    reply = trained(here.answer(leg(model(), leg=number, recipient=recipient)))
    loss, accuracy = held_out_by_hand(model(), PARTITIONS[NAME])

    assert reply.held_out_loss == pytest.approx(loss, rel=1e-9)
    assert reply.held_out_accuracy == pytest.approx(accuracy, abs=1e-9)


def test_a_handed_over_model_is_not_evaluated() -> None:
    # Its figures would tell the coordinator about a model it must not see.
    reply = trained(hospital().answer(leg(model(), carries=Carries.ENVELOPE)))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)


@pytest.mark.parametrize("init", ["own", "shared"])
def test_a_first_model_that_is_built_here_is_not_evaluated(init: str) -> None:
    here = member()
    here.answer(set_up(built_here(init=init)))

    reply = trained(here.answer(leg(carries=Carries.NOTHING)))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)


def test_the_final_model_is_evaluated_on_held_out_data() -> None:
    loss, accuracy = held_out_by_hand(model(), PARTITIONS[NAME])

    reply = plain(hospital().answer(close(model())))

    assert isinstance(reply, Closed)
    assert reply.held_out_loss == pytest.approx(loss, rel=1e-9)
    assert reply.held_out_accuracy == pytest.approx(accuracy, abs=1e-9)


@pytest.mark.parametrize("held_out", [0, 4])
def test_metrics_of_too_few_examples_are_not_sent(held_out: int) -> None:
    here = hospital(partition=Partition(NAME, PARTITIONS[NAME].train, examples(held_out, seed=3)))

    reply = trained(here.answer(leg(model())))
    closed = plain(here.answer(close(model())))

    assert (reply.held_out_loss, reply.held_out_accuracy) == (None, None)
    assert closed == Closed(held_out_loss=None, held_out_accuracy=None)


def test_metrics_are_rounded_as_the_policy_says() -> None:
    exact = trained(hospital().answer(leg(model())))
    here = member(policy={"metric-decimals": 2})
    here.answer(set_up(descriptor()))

    rounded = trained(here.answer(leg(model())))

    for name in ("loss", "accuracy", "held_out_loss", "held_out_accuracy"):
        assert getattr(rounded, name) == round(getattr(exact, name), 2)
    assert rounded.loss != exact.loss


def test_metrics_that_the_policy_withholds_are_not_sent() -> None:
    here = member(policy={"metrics": []})

    announced = plain(here.answer(set_up(descriptor())))
    reply = trained(here.answer(leg(model())))
    closed = plain(here.answer(close(model())))

    assert isinstance(announced, Announcement)
    assert announced.examples is None
    assert {reply.loss, reply.accuracy, reply.held_out_loss, reply.held_out_accuracy} == {None}
    assert closed == Closed(held_out_loss=None, held_out_accuracy=None)
