"""Local training against torch's own optimisers and autograd, and what must not depend on what."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learning.data import Examples
from learning.losses import loss_of, predictions
from learning.models import ModelError
from learning.settings import TrainingSettings
from learning.trainer import Arrays, Network, Task, Trainer

SHAPE, CLASSES = (5,), 3
Build = Callable[[], nn.Module]


class FixedStreams:
    """Streams that a reader can follow: round t takes rows t, t+1, … and has the seed 100 + t."""

    def batch(self, round_: int, examples: int, size: int) -> NDArray[np.int64]:
        return (round_ + np.arange(size)) % examples

    def dropout_seed(self, round_: int) -> int:
        return 100 + round_


class OtherSeeds(FixedStreams):
    def dropout_seed(self, round_: int) -> int:
        return 900 + round_


def examples(count: int = 7, shape: tuple[int, ...] = SHAPE, classes: int = CLASSES) -> Examples:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(count, *shape)).astype(np.float32)
    return Examples(features, rng.integers(0, classes, count))


def parsed(**changes: Any) -> TrainingSettings:
    values = {"model-options": '{"hidden": [4]}', "precision": "float64", "batch-size": 3}
    values |= {key.replace("_", "-"): value for key, value in changes.items()}
    return TrainingSettings.parse(values, source="test")


def trainer(
    streams: FixedStreams | None = None, data: Examples | None = None, **changes: Any
) -> Trainer:
    network = Network(parsed(**changes), Task(SHAPE, CLASSES), seed=1)
    return Trainer(network, data or examples(), streams or FixedStreams())


def train(who: Trainer, first: int, rounds: int, *, anchor: Arrays | None = None) -> Arrays:
    """Train from a fresh optimiser; return the new parameters."""
    who.train(first, rounds, who.fresh_optimizer(), anchor)
    return who.network.arrays()[0]


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


def twin(who: Trainer) -> nn.Module:
    """Return the trainer's network, built by hand with the same first weights."""
    network = nn.Sequential()
    network.add_module("linear1", nn.Linear(5, 4))
    network.add_module("relu", nn.ReLU())
    network.add_module("output", nn.Linear(4, 3))
    network.double()
    for name, tensor in network.named_parameters():
        tensor.data = torch.tensor(who.network.arrays()[0][name])
    return network


def assert_close(ours: Arrays, theirs: Arrays) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-10, atol=1e-12, err_msg=name)


def assert_differ(ours: Arrays, theirs: Arrays) -> None:
    assert any(not np.allclose(ours[name], theirs[name], rtol=1e-6) for name in ours)


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
    network = Network(settings, Task((2,), 2), seed=0)
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


# --- networks of other kinds ----------------------------------------------------------------------


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Build], None]:
    """Have the trainer build a hand-made network, as a plug-in would."""

    def use(create: Build) -> None:
        def build(name: str, *, seed: int, **_: Any) -> nn.Module:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                return create()

        monkeypatch.setattr("learning.trainer.build", build)

    return use


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.5), nn.Linear(16, 3))


def test_dropout_is_the_same_for_the_same_round_and_hospital(use: Any) -> None:
    use(with_dropout)

    torch.manual_seed(1)
    first = train(trainer(), 0, 4)
    torch.manual_seed(2)
    torch.rand(100)

    assert_close(train(trainer(), 0, 4), first)


def test_dropout_differs_between_rounds_and_between_hospitals(use: Any) -> None:
    use(with_dropout)

    def step(round_: int, streams: FixedStreams) -> Arrays:
        return train(trainer(streams, batch_size=0), round_, 1)

    # Whole sets in both rounds: only the dropped units can differ.
    assert_differ(step(0, FixedStreams()), step(1, FixedStreams()))
    assert_differ(step(0, FixedStreams()), step(0, OtherSeeds()))


def test_dropout_of_a_round_does_not_depend_on_the_rounds_before(use: Any) -> None:
    use(with_dropout)
    whole, parts = trainer(), trainer()

    expected = train(whole, 3, 4)
    for round_ in range(3, 7):
        train(parts, round_, 1)

    assert_close(parts.network.arrays()[0], expected)


def test_training_and_building_leave_torchs_generator_as_it_was(use: Any) -> None:
    use(with_dropout)
    torch.manual_seed(11)
    expected = torch.rand(5)

    torch.manual_seed(11)
    train(trainer(), 0, 3)

    assert torch.equal(torch.rand(5), expected)


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def test_running_statistics_are_buffers_and_follow_the_batches(use: Any) -> None:
    use(with_batch_norm)
    ours = trainer(batch_size=0, learning_rate=1e-9)
    parameters, buffers = ours.network.arrays()
    x = examples().features.astype(np.float64)
    hidden = x @ parameters["0.weight"].T + parameters["0.bias"]

    train(ours, 0, 1)
    after = ours.network.arrays()[1]

    assert set(buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    np.testing.assert_allclose(after["1.running_mean"], 0.1 * hidden.mean(0), rtol=1e-9)
    np.testing.assert_allclose(after["1.running_var"], 0.9 + 0.1 * hidden.var(0, ddof=1), rtol=1e-9)
    assert after["1.num_batches_tracked"].dtype == np.int64
    assert after["1.num_batches_tracked"].shape == ()
    assert int(after["1.num_batches_tracked"]) == 1


def test_a_loaded_state_is_the_whole_state(use: Any) -> None:
    use(with_batch_norm)
    one, other = trainer(), trainer()
    train(one, 0, 5)
    train(other, 9, 3)

    other.network.load(*one.network.arrays())

    for ours, theirs in zip(other.network.arrays(), one.network.arrays(), strict=True):
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    expected = train(one, 5, 2)
    assert_close(train(other, 5, 2), expected)


def test_frozen_weights_go_with_the_buffers_and_do_not_move(use: Any) -> None:
    def frozen() -> nn.Module:
        network = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
        network[0].weight.requires_grad_(False)
        return network

    use(frozen)
    ours = trainer(momentum=0.9, weight_decay=0.5)
    before = ours.network.arrays()

    train(ours, 0, 4)
    parameters, buffers = ours.network.arrays()

    assert set(buffers) == {"0.weight"}
    assert set(parameters) == {"0.bias", "1.weight", "1.bias"}
    assert np.array_equal(buffers["0.weight"], before[1]["0.weight"])
    assert_differ(parameters, before[0])
    assert set(ours.optimizer_layout) == {f"momentum/{name}" for name in parameters}


def test_a_weight_that_two_layers_share_is_one_parameter(use: Any) -> None:
    def tied() -> nn.Module:
        first, second = nn.Linear(5, 5), nn.Linear(5, 5)
        second.weight = first.weight
        return nn.Sequential(first, second, nn.Linear(5, 3))

    use(tied)
    ours = trainer()

    parameters, buffers = ours.network.arrays()

    # As a buffer, too, it would be averaged twice and overwrite what was aggregated.
    assert set(parameters) == {"0.weight", "0.bias", "1.bias", "2.weight", "2.bias"}
    assert buffers == {}
    ours.network.load(parameters | {"0.weight": np.full((5, 5), 0.25)}, {})
    assert ours.network.module.get_parameter("1.weight")[2, 3].item() == 0.25


def test_whole_numbers_stay_whole_when_loaded(use: Any) -> None:
    use(with_batch_norm)
    network = trainer().network
    parameters, buffers = network.arrays()

    network.load(parameters, buffers | {"1.num_batches_tracked": np.array(2**40 + 1)})

    assert int(network.arrays()[1]["1.num_batches_tracked"]) == 2**40 + 1


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_all_arithmetic_has_the_precision_asked_for(precision: str, optimizer: str) -> None:
    ours = trainer(precision=precision, optimizer=optimizer)

    state, _ = ours.train(0, 2, ours.fresh_optimizer(), None)
    parameters, _ = ours.network.arrays()

    assert {array.dtype.name for array in parameters.values()} == {precision}
    moments = {array.dtype.name for name, array in state.items() if name != "step"}
    assert moments == ({precision} if optimizer == "adam" else set())
    assert all(
        (array.shape, array.dtype) == ours.network.parameter_layout[name]
        for name, array in parameters.items()
    )
    assert all((a.shape, a.dtype) == ours.optimizer_layout[name] for name, a in state.items())


def test_precision_changes_the_result_only_by_rounding() -> None:
    single, double = trainer(precision="float32"), trainer()
    double.network.load(
        {name: a.astype(np.float64) for name, a in single.network.arrays()[0].items()}, {}
    )
    ours, theirs = train(single, 0, 5), train(double, 0, 5)

    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=1e-4, atol=1e-6)


# --- networks that can't be trained ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "task", "message"),
    [
        ({"loss": "hinge"}, Task((5,), 2), r"loss = hinge needs two classes and one output"),
        ({"loss": "hinge", "model": "linear"}, Task((5,), 3), "hinge needs two classes"),
        ({"model": "linear", "model_options": '{"outputs": 1}'}, Task((5,), 2), "output per class"),
        ({"model": "mpl"}, Task((5,), 2), "did you mean 'mlp'"),
    ],
)
def test_a_loss_that_does_not_fit_the_network_is_refused(
    changes: dict[str, Any], task: Task, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        Network(parsed(**({"model_options": "{}"} | changes)), task, seed=0)


def test_a_network_without_anything_to_train_is_refused(use: Any) -> None:
    use(nn.Flatten)
    with pytest.raises(ModelError, match="mlp has nothing to train"):
        trainer()


def test_a_network_that_cannot_take_the_examples_is_refused_in_one_line(use: Any) -> None:
    use(lambda: nn.Linear(6, 3))
    with pytest.raises(ModelError, match=r"mlp can't take examples of shape \(5,\)") as refused:
        trainer()
    assert "\n" not in str(refused.value)
