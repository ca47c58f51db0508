"""Local training of networks of other kinds: dropout, running statistics, frozen weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from learning.models import ModelError
from learning.trainer import Arrays, Network, TaskSpec
from tests.learning.small_trainer import (
    FixedStreams,
    OtherSeeds,
    assert_close,
    assert_differ,
    examples,
    parsed,
    train,
    trainer,
)

Build = Callable[[], nn.Module]


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
        ({"loss": "hinge"}, TaskSpec((5,), 2), r"loss = hinge needs two classes and one output"),
        ({"loss": "hinge", "model": "linear"}, TaskSpec((5,), 3), "hinge needs two classes"),
        (
            {"model": "linear", "model_options": '{"outputs": 1}'},
            TaskSpec((5,), 2),
            "output per class",
        ),
        ({"model": "mpl"}, TaskSpec((5,), 2), "did you mean 'mlp'"),
    ],
)
def test_a_loss_that_does_not_fit_the_network_is_refused(
    changes: dict[str, Any], task: TaskSpec, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        Network(parsed(**({"model_options": "{}"} | changes)), task, seed=0)


def test_a_network_without_anything_to_train_is_refused(use: Any) -> None:
    use(nn.Flatten)
    with pytest.raises(ModelError, match="mlp has no trainable parameters"):
        trainer()


def test_a_network_that_cannot_take_the_examples_is_refused_in_one_line(use: Any) -> None:
    use(lambda: nn.Linear(6, 3))
    with pytest.raises(ModelError, match=r"mlp can't take examples of shape \(5,\)") as refused:
        trainer()
    assert "\n" not in str(refused.value)
