"""The system computes Algorithm 1: compared with a direct reading of it, parameter by parameter."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from learning.local_data import load_dataset, load_partitions
from learning.models import build
from protocol.messages import Carries
from protocol.randomness import TrainingStreams, derive_seed, shared_init_seed
from tests.conftest import Run


def algorithm_1(
    run: Run, *, mu: float = 0.0, optimizer: str = "sgd", kept: bool = False
) -> list[nn.Module]:
    """Read Algorithm 1 off the paper: every model is trained in every round, at its hospital.

    Only the random draws are taken from the run itself: which hospitals communicated at the end of
    round t, and the permutation π_t, as the recorded requests say.
    """
    s = run.settings
    a, m, seed = s.algorithm, s.algorithm.hospitals, derive_seed(s.algorithm.seed, "training")
    partitions = load_partitions(s.local, m, a.seed)
    streams = [TrainingStreams(seed, i) for i in range(m)]
    inits = [shared_init_seed(seed)] * m if a.init == "shared" else [x.init_seed() for x in streams]
    h = [new_model(s, x) for x in inits]
    opt = [new_optimizer(s, model) for model in h]
    anchor = [copy.deepcopy(model) if a.init == "shared" else None for model in h]
    talks = conversations(run)
    for t in range(a.rounds):
        for i in range(m):
            x, y = (
                torch.from_numpy(v)
                for v in (partitions[i].train.features, partitions[i].train.labels)
            )
            if 0 < s.training.batch_size < len(y):
                rows = torch.from_numpy(streams[i].batch(t, len(y), s.training.batch_size))
                x, y = x[rows], y[rows]
            loss = nn.functional.cross_entropy(h[i](x.double()), y)
            if mu and anchor[i] is not None:
                pairs = zip(h[i].parameters(), anchor[i].parameters(), strict=True)
                loss = loss + mu / 2 * sum(((w - v.detach()) ** 2).sum() for w, v in pairs)
            opt[i].zero_grad()
            loss.backward()
            opt[i].step()
        if t in talks and talks[t]["recipients"]:
            pi = talks[t]["recipients"]
            h, opt = list(h), list(opt)
            moved = {pi[i]: (h[i], opt[i]) for i in pi}
            for j, (model, its_optimizer) in moved.items():
                h[j], opt[j] = model, its_optimizer
        elif t in talks:
            drawn = talks[t]["drawn"]
            mean = copy.deepcopy(h[drawn[0]])
            for name, w in mean.named_parameters():
                w.data = torch.stack([h[i].get_parameter(name).data for i in drawn]).mean(0)
            for i in drawn:
                h[i].load_state_dict(mean.state_dict())
                anchor[i] = copy.deepcopy(mean)
                if not kept:
                    opt[i] = new_optimizer(s, h[i])
    return h


def new_model(s: Any, seed: int) -> nn.Module:
    dataset = load_dataset(s.local, s.algorithm.seed)
    model = build(
        s.training.model,
        shape=dataset.shape,
        classes=len(dataset.classes),
        options=s.training.options,
        seed=seed,
    )
    return model.double()


def new_optimizer(s: Any, model: nn.Module) -> torch.optim.Optimizer:
    t = s.training
    if t.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=t.learning_rate)
    return torch.optim.SGD(model.parameters(), lr=t.learning_rate, momentum=t.momentum)


def conversations(run: Run) -> dict[int, dict[str, Any]]:
    """Return, for each round that ended in communication, who took part and who sent to whom."""
    names = [partition.name for partition in partitions_of(run)]
    talks: dict[int, dict[str, Any]] = {}
    for position, request in run.grid.legs():
        last = request.first_round + request.local_rounds - 1
        talk = talks.setdefault(last, {"drawn": [], "recipients": {}})
        talk["drawn"].append(position)
        if request.recipient is not None:
            talk["recipients"][position] = names.index(request.recipient)
    return talks


def partitions_of(run: Run) -> Any:
    s = run.settings
    return load_partitions(s.local, s.algorithm.hospitals, s.algorithm.seed)


def assert_same_parameters(run: Run, expected: nn.Module) -> None:
    assert set(run.model) == set(expected.state_dict())
    for name, tensor in expected.state_dict().items():
        np.testing.assert_allclose(run.model[name], tensor.numpy(), rtol=1e-10, atol=1e-12)


CASES: dict[str, dict[str, Any]] = {
    "FedDC": {},
    "FedAvg": {"daisy_period": 0},
    "FedAvg every round": {"daisy_period": 0, "aggregation_period": 1},
    "plain daisy-chaining": {"aggregation_period": 0},
    "longer legs": {"daisy_period": 2, "aggregation_period": 5},
    "own init": {"init": "own"},
    "subsampling": {"fraction": 0.5},
    "subsampling, own init": {"fraction": 0.5, "init": "own"},
    "derangement": {"permutation": "derangement"},
    "coverage": {"permutation": "coverage", "aggregation_period": 6},
    "unequal sizes": {"split": "skewed", "skew_min_examples": 3},
    "whole local sets": {"batch_size": 0},
    "momentum": {"momentum": 0.9},
    "momentum and subsampling": {"momentum": 0.9, "fraction": 0.5},
    "Adam": {"optimizer": "adam", "learning_rate": 0.01},
    "random schedule": {"schedule": "random", "aggregation_period": 3},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_equals_a_direct_reading_of_algorithm_1(run_tiny: Any, changes: dict[str, Any]) -> None:
    run = run_tiny(**changes)
    assert_same_parameters(run, algorithm_1(run)[0])


@pytest.mark.parametrize("changes", [{}, {"fraction": 0.5}, {"init": "own"}, {"daisy_period": 0}])
def test_fedprox_pulls_towards_the_aggregate_last_received(
    run_tiny: Any, changes: dict[str, Any]
) -> None:
    run = run_tiny(aggregator="fedprox", proximal_mu=0.5, **changes)
    assert_same_parameters(run, algorithm_1(run, mu=0.5)[0])
    without = algorithm_1(run, mu=0.0)[0]
    with pytest.raises(AssertionError):
        assert_same_parameters(run, without)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_optimizer_state_stays_at_the_hospital_when_kept(run_tiny: Any, optimizer: str) -> None:
    changes = {"optimizer": optimizer, "learning_rate": 0.01}
    changes |= {"momentum": 0.9} if optimizer == "sgd" else {}
    run = run_tiny(optimizer_state="kept", **changes)
    assert_same_parameters(run, algorithm_1(run, kept=True)[0])
    with pytest.raises(AssertionError):
        assert_same_parameters(run, algorithm_1(run, kept=False)[0])


def test_one_aggregation_a_round_of_whole_sets_is_full_batch_gradient_descent(
    run_tiny: Any,
) -> None:
    run = run_tiny(daisy_period=0, aggregation_period=1, batch_size=0)
    s, partitions = run.settings, partitions_of(run)
    model = new_model(s, shared_init_seed(derive_seed(s.algorithm.seed, "training")))
    x = torch.from_numpy(
        np.concatenate([partition.train.features for partition in partitions])
    ).double()
    y = torch.from_numpy(np.concatenate([partition.train.labels for partition in partitions]))
    for _ in range(s.algorithm.rounds):
        gradients = torch.autograd.grad(
            nn.functional.cross_entropy(model(x), y), list(model.parameters())
        )
        for w, g in zip(model.parameters(), gradients, strict=True):
            w.data -= s.training.learning_rate * g
    assert_same_parameters(run, model)


def test_every_leg_of_a_chain_carries_what_the_previous_hospital_sent(run_tiny: Any) -> None:
    run = run_tiny()
    names = [partition.name for partition in partitions_of(run)]
    sent: dict[tuple[int, str], bytes] = {}
    replies = iter([(p, r) for p, r in run.grid.replies if r.kind == "trained"])
    handed = 0
    for position, request in run.grid.legs():
        if request.carries is Carries.ENVELOPE:
            assert request.payload == sent.pop((request.leg - 1, names[position]))
            handed += 1
        who, reply = next(replies)
        assert who == position
        if request.recipient is not None:
            sent[request.leg, request.recipient] = reply.payload
    assert handed == 9 * 6  # hand-overs of 12 rounds with b = 4, each of 6 hospitals
    assert not sent
