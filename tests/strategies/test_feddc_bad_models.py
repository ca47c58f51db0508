"""FedDC and models that can't be aggregated, or may not be handed over."""

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Message

from protocol.message_bytes import decode_signed_reply, decode_signed_request
from protocol.messages import Refusal, RefusalCode
from protocol.model_bytes import ModelState
from protocol.records import from_records
from tests.strategies.misconduct import answers, in_leg, signed, tampers
from tests.strategies.unruly_grid import NAMES, UnrulyGrid, assert_same, run, tiny


def turned(model: ModelState) -> ModelState:
    name = max(model.parameters, key=lambda name: model.parameters[name].ndim)
    assert len(set(model.parameters[name].shape)) > 1
    return ModelState(model.parameters | {name: model.parameters[name].T}, model.buffers)


def renamed(model: ModelState) -> ModelState:
    first, *others = model.parameters
    arrays = {f"{first[:-1]}_": model.parameters[first]}
    return ModelState(arrays | {name: model.parameters[name] for name in others}, model.buffers)


def other_shape(model: ModelState) -> ModelState:
    name = min(model.parameters)
    return ModelState(model.parameters | {name: np.zeros(17)}, model.buffers)


def other_type(model: ModelState) -> ModelState:
    name = min(model.parameters)
    array = model.parameters[name].astype(np.float32)
    return ModelState(model.parameters | {name: array}, model.buffers)


def one_missing(model: ModelState) -> ModelState:
    name = min(model.parameters)
    return ModelState({k: a for k, a in model.parameters.items() if k != name}, model.buffers)


def one_more(model: ModelState) -> ModelState:
    return ModelState(model.parameters, model.buffers | {"extra": np.zeros(1)})


def not_a_number(model: ModelState) -> ModelState:
    name = min(model.parameters)
    array = model.parameters[name].copy()
    array.flat[0] = np.nan
    return ModelState(model.parameters | {name: array}, model.buffers)


def infinite(model: ModelState) -> ModelState:
    name = min(model.parameters)
    return ModelState(
        model.parameters | {name: np.full_like(model.parameters[name], np.inf)}, model.buffers
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (turned, "in another shape or type"),
        (renamed, "other tensors"),
        (other_shape, "where the model has exactly"),
        (other_type, "where the model has exactly"),
        (one_missing, "where the model has exactly"),
        (one_more, "where the model has exactly"),
        (not_a_number, "not finite"),
        (infinite, "not finite"),
    ],
)
def test_a_model_that_does_not_fit_is_left_out_of_the_aggregate_and_named(
    change: Callable[[ModelState], ModelState], reason: str
) -> None:
    outcome = run(UnrulyGrid(tiny(rounds=5), in_leg(4, 3, tampers(change))))
    assert reason in outcome.diary.reports[4].missing[NAMES[3]]
    assert set(outcome.diary.models[4]) == set(NAMES) - {NAMES[3]}
    assert_same(outcome.diary.aggregates[4].parameters, outcome.mean(4))
    assert len(outcome.diary.models[5]) == 6  # it goes on from the aggregate


def test_bytes_that_are_no_model_are_left_out_of_the_aggregate() -> None:
    def conduct(message: Message, reply: Message) -> Message:
        trained = decode_signed_reply(from_records(reply.content))
        forged = trained.model_copy(update={"payload": b"\x80\x04pickle"})
        return Message(signed(message, forged), reply_to=message)

    outcome = run(UnrulyGrid(tiny(rounds=4), in_leg(4, 3, conduct)))
    assert "sent no model" in outcome.diary.reports[4].missing[NAMES[3]]
    assert len(outcome.diary.models[4]) == 5


@pytest.mark.parametrize("leg", [1, 4])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_model_of_another_length_is_neither_stored_nor_parsed(leg: int, sealed: bool) -> None:
    """Before, an "envelope" of 64 MiB for a model of 12 bytes was stored and handed on."""

    def conduct(message: Message, reply: Message) -> Message:
        trained = decode_signed_reply(from_records(reply.content))
        forged = trained.model_copy(update={"payload": trained.payload + bytes(1 << 20)})
        return Message(signed(message, forged), reply_to=message)

    settings = tiny(rounds=5, sealed=sealed)
    outcome = run(UnrulyGrid(settings, in_leg(leg, 3, conduct)))
    assert re.search("sent .*bytes", outcome.diary.reports[leg].missing[NAMES[3]])
    assert all(len(r.payload) < 1 << 20 for _, _, r in outcome.grid.conversation())


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e308, -1e13])
def test_a_loss_that_is_no_plausible_figure_makes_a_reply_unusable(loss: float) -> None:
    """Before, NaN and 1e308 were accepted, and spoiled the means over all hospitals."""

    def conduct(message: Message, reply: Message) -> Message:
        trained = decode_signed_reply(from_records(reply.content))
        return Message(signed(message, trained.model_copy(update={"loss": loss})), reply_to=message)

    outcome = run(UnrulyGrid(tiny(rounds=5), in_leg(4, 3, conduct)))
    assert "unusable reply" in outcome.diary.reports[4].missing[NAMES[3]]


def test_a_handed_over_model_that_does_not_fit_is_refused_by_its_recipient() -> None:
    # The coordinator could not look into a sealed one. The chain is lost, and said to be.
    outcome = run(UnrulyGrid(tiny(rounds=8), in_leg(1, 3, tampers(not_a_number))))
    recipient = outcome.grid.requests(1)[3].recipient
    reports = outcome.diary.reports
    assert dict(reports[2].missing) == {recipient: "refused: not-finite"}
    assert (reports[2].lost_chains, reports[2].parked) == (1, ())
    assert len(outcome.grid.requests(3)) == 5  # one model less; nobody is asked in vain
    assert not any(reports[leg].missing for leg in (1, 3, 5, 6, 7, 8))
    assert reports[8].lost_chains == 1
    for aggregate in outcome.diary.aggregates.values():
        assert all(np.isfinite(array).all() for array in aggregate.parameters.values())


def test_a_request_parked_by_a_refusal_is_the_same_also_after_an_absence() -> None:
    # The refusal moves the hospital's audit trail on, which a new request would have to tell.
    settings = tiny(sealed=True, rounds=6, aggregation_period=6)
    refused = answers(Refusal(code=RefusalCode.INTERNAL_ERROR))  # a full disk, say
    outcome = run(UnrulyGrid(settings, in_leg(2, 3, refused), away={3: {3}}))
    assert [outcome.diary.reports[leg].missing.get(NAMES[3]) for leg in (2, 3, 4)] == [
        "refused: internal-error",
        "not connected",
        None,
    ]
    asked = [data for position, data in outcome.grid.asked if position == 3]
    again = [data for data in asked if getattr(decode_signed_request(data), "leg", None) == 2]
    assert len(again) == 2  # in legs 2 and 4
    assert len(set(again)) == 1


def test_a_model_that_may_not_go_to_its_recipient_goes_to_another() -> None:
    declines = answers(Refusal(code=RefusalCode.TOO_MANY_TO_ONE))
    outcome = run(UnrulyGrid(tiny(sealed=True, rounds=6), in_leg(2, 3, declines)))
    reports = outcome.diary.reports
    assert reports[2].missing == {NAMES[3]: "refused: too-many-to-one"}
    assert (reports[2].parked, reports[2].lost_chains) == ((), 0)
    again = outcome.grid.requests(3)[3]
    assert again.payload == outcome.grid.requests(2)[3].payload
    assert again.leg == 3


def test_an_unsealed_hand_over_is_not_forwarded_where_sealing_was_agreed() -> None:
    def opened(message: Message, reply: Message) -> Message:
        trained = decode_signed_reply(from_records(reply.content))
        bare = trained.model_copy(update={"sealed": False, "payload": b"readable"})
        return Message(signed(message, bare), reply_to=message)

    outcome = run(UnrulyGrid(tiny(sealed=True, rounds=6), in_leg(2, 3, opened)))
    assert outcome.diary.reports[2].missing == {NAMES[3]: "did not seal its model"}
    assert not any(b"readable" in data for _, data in outcome.grid.asked)
