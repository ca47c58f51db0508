"""Local training against torch's own optimisers and autograd."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learning.data import Examples
from learning.losses import loss_of, predictions
from learning.trainer import Arrays, Network, TaskSpec, Trainer
from tests.learning.small_trainer import (
    FixedStreams,
    assert_close,
    examples,
    parsed,
    train,
    trainer,
    twin,
)


def by_torch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    rounds: range,
    *,
    batch: int = 3,
    rate: Callable[[int], float] | None = None,
    penalty: Callable[[nn.Module], Tensor] | None = None,
) -> Arrays:
    """Train the usual way: zero_grad, backward, step."""
    data = examples()
    x, y = torch.tensor(data.features, dtype=torch.float64), torch.tensor(data.labels)
    for t in rounds:
        rows = [(t + i) % len(y) for i in range(batch)]
        loss = nn.functional.cross_entropy(network(x[rows]), y[rows])
        if penalty is not None:
            loss = loss + penalty(network)
        if rate is not None:
            optimizer.param_groups[0]["lr"] = rate(t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}


# --- against torch.optim --------------------------------------------------------------------------

RULES: dict[str, tuple[dict[str, Any], Callable[[Any], torch.optim.Optimizer]]] = {
    "sgd": ({}, lambda w: torch.optim.SGD(w, lr=0.1)),
    "momentum": ({"momentum": 0.9}, lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.9)),
    "weight decay": (
        {"momentum": 0.5, "weight_decay": 0.2},
        lambda w: torch.optim.SGD(w, lr=0.1, momentum=0.5, weight_decay=0.2),
    ),
    "adam": (
        {"optimizer": "adam", "learning_rate": 0.03},
        lambda w: torch.optim.Adam(w, lr=0.03),
    ),
    "adam with weight decay": (
        {"optimizer": "adam", "learning_rate": 0.03, "weight_decay": 0.2},
        lambda w: torch.optim.Adam(w, lr=0.03, weight_decay=0.2),
    ),
}


@pytest.mark.parametrize(("changes", "optimizer"), RULES.values(), ids=RULES)
def test_training_is_what_torch_computes(
    changes: dict[str, Any], optimizer: Callable[[Any], torch.optim.Optimizer]
) -> None:
    ours = trainer(**changes)
    network = twin(ours)

    expected = by_torch(network, optimizer(network.parameters()), range(4, 13))

    assert_close(train(ours, 4, 9), expected)


@pytest.mark.parametrize(("changes", "optimizer"), RULES.values(), ids=RULES)
def test_fedprox_is_the_gradient_of_its_penalty(
    changes: dict[str, Any], optimizer: Callable[[Any], torch.optim.Optimizer]
) -> None:
    ours = trainer(proximal_mu=0.7, **changes)
    network = twin(ours)
    anchor = {name: array + 0.5 for name, array in ours.network.arrays()[0].items()}

    def penalty(model: nn.Module) -> Tensor:
        pairs = [(w, torch.tensor(anchor[name])) for name, w in model.named_parameters()]
        return 0.7 / 2 * sum((((w - a) ** 2).sum() for w, a in pairs), torch.zeros(()))

    expected = by_torch(network, optimizer(network.parameters()), range(9), penalty=penalty)

    assert_close(train(ours, 0, 9, anchor=anchor), expected)


def test_without_an_anchor_there_is_no_pull() -> None:
    assert_close(train(trainer(proximal_mu=0.7), 0, 5), train(trainer(), 0, 5))


def test_without_mu_an_anchor_pulls_nothing() -> None:
    zeros = {name: np.zeros_like(array) for name, array in trainer().network.arrays()[0].items()}

    assert_close(train(trainer(), 0, 5, anchor=zeros), train(trainer(), 0, 5))


def test_the_learning_rate_decays_with_the_global_round() -> None:
    ours = trainer(learning_rate=0.4, decay_every=3, decay_factor=0.5)
    network = twin(ours)

    expected = by_torch(
        network,
        torch.optim.SGD(network.parameters(), lr=1.0),
        range(5, 13),
        # Rounds 3–5 have half the rate, 6–8 a quarter, 9–11 an eighth, round 12 a sixteenth.
        rate=lambda t: {1: 0.2, 2: 0.1, 3: 0.05, 4: 0.025}[t // 3],
    )

    assert_close(train(ours, 5, 8), expected)


@pytest.mark.parametrize("batch", [0, 7, 8, 10**9])
def test_a_batch_as_large_as_the_data_is_all_the_data(batch: int) -> None:
    ours = trainer(batch_size=batch)
    network = twin(ours)

    # All rows in their order, in every round.
    class Never(FixedStreams):
        def batch(self, round_: int, examples: int, size: int) -> NDArray[np.int64]:
            raise AssertionError("nothing is to be drawn")

    expected = by_torch(network, torch.optim.SGD(network.parameters(), lr=0.1), range(5), batch=7)

    assert_close(train(ours, 0, 5), expected)
    assert_close(train(trainer(Never(), batch_size=batch), 0, 5), expected)


def test_progress_is_the_mean_over_the_batches_before_each_update() -> None:
    ours = trainer()
    network, data = twin(ours), examples()
    x, y = torch.tensor(data.features, dtype=torch.float64), torch.tensor(data.labels)
    losses, hits = [], []
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for t in range(4):
        rows = [(t + i) % 7 for i in range(3)]
        with torch.no_grad():
            scores = network(x[rows])
        losses.append(float(nn.functional.cross_entropy(scores, y[rows])))
        hits.append(float((scores.argmax(1) == y[rows]).double().mean()))
        by_torch(network, optimizer, range(t, t + 1))

    _, progress = ours.train(0, 4, ours.fresh_optimizer(), None)

    assert progress.loss == pytest.approx(np.mean(losses), rel=1e-12)
    assert progress.accuracy == pytest.approx(np.mean(hits), abs=1e-12)


@pytest.mark.parametrize("changes", [rule[0] for rule in RULES.values()], ids=RULES)
def test_training_goes_on_from_a_state_that_was_sent(changes: dict[str, Any]) -> None:
    whole, first, second = trainer(**changes), trainer(**changes), trainer(**changes)
    state, _ = first.train(2, 3, first.fresh_optimizer(), None)
    second.network.load(*first.network.arrays())

    final, _ = second.train(5, 4, state, None)
    expected, _ = whole.train(2, 7, whole.fresh_optimizer(), None)

    for ours, theirs in (
        (final, expected),
        (second.network.arrays()[0], whole.network.arrays()[0]),
    ):
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_a_state_that_was_handed_in_is_not_changed() -> None:
    ours = trainer(momentum=0.9)
    state = {name: array + 1 for name, array in ours.fresh_optimizer().items()}
    anchor = ours.network.arrays()[0]
    before = {name: array.copy() for name, array in (state | anchor).items()}

    ours.train(0, 3, state, anchor)

    assert all(np.array_equal(array, before[name]) for name, array in (state | anchor).items())


def test_arrays_given_out_do_not_change_later() -> None:
    ours = trainer()
    parameters, _ = ours.network.arrays()
    before = {name: array.copy() for name, array in parameters.items()}

    train(ours, 0, 3)

    assert all(np.array_equal(parameters[name], before[name]) for name in before)


# --- hinge ----------------------------------------------------------------------------------------


def test_hinge_loss_by_hand() -> None:
    margins = torch.tensor([[0.5], [2.0], [-0.25], [-3.0]])
    labels = torch.tensor([1, 1, 0, 1])

    # 1 − 0.5, beyond the margin 0, 1 − 0.25, 1 + 3: together 5.25.
    assert float(loss_of("hinge", margins, labels)) == 5.25 / 4
    assert predictions(margins).tolist() == [1, 1, 0, 0]


def test_a_hinge_step_by_hand() -> None:
    settings = parsed(
        model="linear",
        model_options='{"outputs": 1}',
        loss="hinge",
        learning_rate=0.5,
        batch_size=0,
    )
    network = Network(settings, TaskSpec((2,), 2), seed=0)
    network.load({"output.weight": np.array([[1.0, -1.0]]), "output.bias": np.array([0.0])}, {})
    data = Examples(
        np.array([[2, 0], [0, 0.5], [1, 1], [0, 2]], np.float32), np.array([1, 1, 0, 0])
    )

    Trainer(network, data, FixedStreams()).train(0, 1, {}, None)

    # Margins y·f: 2, −0.5, 0 and 2. Rows 2 and 3 are inside the margin: the gradient of the mean
    # is −([0, 0.5] − [1, 1])/4 = [0.25, 0.125] for w and −(1 − 1)/4 = 0 for b.
    parameters, _ = network.arrays()
    np.testing.assert_allclose(parameters["output.weight"], [[0.875, -1.0625]], rtol=1e-15)
    np.testing.assert_allclose(parameters["output.bias"], [0.0], atol=1e-15)


def test_cross_entropy_predicts_the_largest_score() -> None:
    assert predictions(torch.tensor([[0.1, 0.7, 0.2], [3.0, -1.0, 2.0]])).tolist() == [1, 0]
