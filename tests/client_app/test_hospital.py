"""The hospital: what it agrees to, and what it computes."""

import numpy as np
import pytest
import torch
from torch import nn

from client_app.hospital.agreement.policy import Policy
from client_app.hospital.hospital import Hospital
from client_app.state.store import MappingStore
from learning.models import build
from protocol.messages import Announcement, Carries, Hello, Introduction
from protocol.model_bytes import ModelState
from protocol.randomness import TrainingStreams
from tests.client_app.small_hospital import (
    CLASSES,
    EVERY_LEG_AGGREGATES,
    NAME,
    OPTIMIZERS,
    PARTITIONS,
    ROSTER,
    SHAPE,
    STRANGER,
    WITH_BUFFERS,
    descriptor,
    hospital,
    leg,
    member,
    model,
    plain,
    set_up,
    signed,
    trained,
    wired,
)

# --- what it agrees to ----------------------------------------------------------------------------


def test_it_says_its_name() -> None:
    assert plain(member().answer(signed(Hello()))) == Introduction(hospital=NAME)


def test_it_has_the_identity_that_the_roster_pins() -> None:
    policy = Policy.parse({}, source="test")
    with pytest.raises(ValueError, match="north is not on the roster with this identity"):
        Hospital(
            NAME,
            PARTITIONS[NAME],
            MappingStore({}),
            identity=STRANGER,
            roster=ROSTER,
            policy=policy,
        )


def test_it_agrees_and_says_how_many_examples_it_trains_on() -> None:
    reply = plain(member().answer(set_up(descriptor())))

    assert isinstance(reply, Announcement)
    assert reply.examples == 8


def test_a_reply_says_nothing_of_the_hospital_but_what_the_format_has() -> None:
    # What travels must not name its sender: a recipient must not learn whose model it is.
    reply = trained(hospital(optimizer="adam").answer(leg(model())))
    sent = ModelState.from_bytes(reply.payload)

    assert NAME.encode() not in reply.payload
    assert set(sent.parameters) == set(model().parameters)
    assert {name.split("/")[0] for name in sent.optimizer} == {"m", "v", "step"}


# --- what it computes -----------------------------------------------------------------------------


def test_a_leg_is_plain_gradient_descent_on_the_rounds_own_batches() -> None:
    here = hospital(schedule={"daisy_period": 3})
    reply = trained(here.answer(leg(model(), leg=3, first_round=6, local_rounds=3)))

    data = PARTITIONS[NAME].train
    streams = TrainingStreams(bytes(32), 1)  # north is second on the roster
    w = {name: torch.tensor(array) for name, array in model().parameters.items()}
    losses = []
    for round_ in (6, 7, 8):
        rows = streams.batch(round_, 8, 3)
        x = torch.tensor(data.features[rows], dtype=torch.float64).flatten(1)
        for tensor in w.values():
            tensor.requires_grad_()
        hidden = torch.relu(x @ w["linear1.weight"].T + w["linear1.bias"])
        scores = hidden @ w["output.weight"].T + w["output.bias"]
        loss = nn.functional.cross_entropy(scores, torch.tensor(data.labels[rows]))
        gradients = torch.autograd.grad(loss, list(w.values()))
        w = {n: (t - 0.1 * g).detach() for (n, t), g in zip(w.items(), gradients, strict=True)}
        losses.append(loss.item())
    sent = ModelState.from_bytes(reply.payload)
    for name, tensor in w.items():
        np.testing.assert_allclose(sent.parameters[name], tensor.numpy(), rtol=1e-12)
    assert reply.loss == pytest.approx(np.mean(losses), rel=1e-9)


def test_its_own_first_model_follows_from_seed_and_position_alone() -> None:
    sent = []
    for round_ in (0, 4):
        here = member()
        here.answer(set_up(descriptor(init="own", daisy_period=1)))
        request = leg(carries=Carries.NOTHING, leg=round_ + 1, first_round=round_, local_rounds=1)
        sent.append(ModelState.from_bytes(trained(here.answer(request)).payload))
    expected = build(
        "mlp",
        shape=SHAPE,
        classes=CLASSES,
        options={"hidden": [4]},
        seed=TrainingStreams(bytes(32), 1).init_seed(),
    )
    # One small step away from it, in another direction in another round.
    first = expected.state_dict()["output.weight"].double().numpy()
    distances = [np.abs(each.parameters["output.weight"] - first).max() for each in sent]
    assert all(0 < distance < 0.1 for distance in distances)
    assert sent[0].to_bytes() != sent[1].to_bytes()


def test_running_statistics_travel_and_advance_with_the_model() -> None:
    start = model(**WITH_BUFFERS)

    here = hospital(schedule={"daisy_period": 3}, **WITH_BUFFERS)
    reply = trained(here.answer(leg(start, local_rounds=3)))
    sent = ModelState.from_bytes(reply.payload)

    assert int(sent.buffers["norm1.num_batches_tracked"]) == 3
    assert sent.buffers["norm1.num_batches_tracked"].dtype == np.int64
    assert not np.array_equal(
        sent.buffers["norm1.running_mean"], start.buffers["norm1.running_mean"]
    )


def test_what_is_aggregated_has_no_optimizer_state() -> None:
    for chosen in OPTIMIZERS.values():
        here = hospital(schedule=EVERY_LEG_AGGREGATES, **chosen)
        reply = trained(here.answer(leg(wired(chosen), recipient=None)))
        wire = chosen.get("wire-dtype", "same")
        assert ModelState.from_bytes(reply.payload, wire=wire).optimizer == {}
