"""The update rules against torch.optim, and a stack of models against the models one by one."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learning.optimizers import OptimizerSpec, State, initial_state, step

Tensors = dict[str, torch.Tensor]

SHAPES = {"hidden.weight": (5, 3), "hidden.bias": (5,), "scale": (), "filters": (2, 3, 3, 3)}
SPECS = [
    pytest.param(spec, id=f"{spec.kind}-momentum-{spec.momentum}-decay-{spec.weight_decay}")
    for decay in (0.0, 0.01)
    for spec in (
        OptimizerSpec("sgd", weight_decay=decay),
        OptimizerSpec("sgd", momentum=0.9, weight_decay=decay),
        OptimizerSpec("adam", weight_decay=decay),
    )
]


@pytest.mark.parametrize("spec", SPECS)
def test_twenty_steps_are_torchs_to_the_last_digits(spec: OptimizerSpec) -> None:
    ours, torchs = _twenty_steps_of_both(spec, torch.float64)

    for name in SHAPES:
        torch.testing.assert_close(ours[name], torchs[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spec", SPECS)
def test_twenty_steps_are_torchs_in_single_precision(spec: OptimizerSpec) -> None:
    ours, torchs = _twenty_steps_of_both(spec, torch.float32)

    for name in SHAPES:
        assert ours[name].dtype == torch.float32
        torch.testing.assert_close(ours[name], torchs[name], rtol=2e-6, atol=2e-6)


def test_adam_with_other_constants_is_torchs() -> None:
    spec = OptimizerSpec("adam", betas=(0.5, 0.9), eps=1e-3)

    ours, torchs = _twenty_steps_of_both(spec, torch.float64)

    for name in SHAPES:
        torch.testing.assert_close(ours[name], torchs[name], rtol=1e-12, atol=1e-12)


def test_the_first_two_momentum_steps_by_hand() -> None:
    spec = OptimizerSpec("sgd", momentum=0.5)
    parameters = {"w": torch.tensor([1.0])}
    state = initial_state(spec, parameters)

    step(spec, parameters, {"w": torch.tensor([2.0])}, state, learning_rate=0.25)
    assert parameters["w"].item() == 0.5  # 1 − 0.25·2
    step(spec, parameters, {"w": torch.tensor([1.0])}, state, learning_rate=0.25)
    assert parameters["w"].item() == 0.0  # 0.5 − 0.25·(0.5·2 + 1)


def test_the_first_adam_step_moves_by_the_learning_rate() -> None:
    # After bias correction m/√v is the gradient's sign, however large the gradient.
    spec = OptimizerSpec("adam")
    parameters = {"w": torch.zeros(2, dtype=torch.float64)}
    gradients = {"w": torch.tensor([300.0, -0.5], dtype=torch.float64)}

    step(spec, parameters, gradients, initial_state(spec, parameters), learning_rate=0.125)

    expected = torch.tensor([-0.125, 0.125], dtype=torch.float64)
    torch.testing.assert_close(parameters["w"], expected, rtol=1e-7, atol=0.0)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    spec=st.sampled_from([case.values[0] for case in SPECS]),
)
def test_a_stack_of_models_of_different_age_is_the_models_one_by_one(
    steps: list[int], spec: OptimizerSpec
) -> None:
    models = [_random_tensors(seed) for seed in range(len(steps))]
    states = [initial_state(spec, model) for model in models]
    for seed, (model, state, count) in enumerate(zip(models, states, steps, strict=True)):
        _train(spec, model, state, range(100 * seed, 100 * seed + count))
    stack, stacked_state = _stacked(models), _stacked(states)

    for turn in range(1000, 1003):
        gradients = [_random_tensors(10 * turn + seed) for seed in range(len(models))]
        step(spec, stack, _stacked(gradients), stacked_state, learning_rate=0.05)
        for model, state, gradient in zip(models, states, gradients, strict=True):
            step(spec, model, gradient, state, learning_rate=0.05)

    for name, tensor in (_stacked(models) | _stacked(states)).items():
        torch.testing.assert_close(
            (stack | stacked_state)[name], tensor, rtol=1e-13, atol=1e-13, msg=name
        )


def test_a_stack_in_single_precision_is_the_models_one_by_one() -> None:
    spec = OptimizerSpec("adam")
    models = [_random_tensors(seed, torch.float32) for seed in range(3)]
    states = [initial_state(spec, model) for model in models]
    stack = _stacked(models)
    stacked_state = initial_state(spec, stack, stacked=True)

    for turn in range(5):
        gradients = [_random_tensors(10 * turn + seed, torch.float32) for seed in range(3)]
        step(spec, stack, _stacked(gradients), stacked_state, learning_rate=0.05)
        for model, state, gradient in zip(models, states, gradients, strict=True):
            step(spec, model, gradient, state, learning_rate=0.05)

    for name, tensor in _stacked(models).items():
        torch.testing.assert_close(stack[name], tensor, rtol=1e-6, atol=1e-7)


def test_a_new_stack_counts_steps_for_each_model() -> None:
    spec = OptimizerSpec("adam")
    models = [_random_tensors(seed) for seed in range(3)]

    state = initial_state(spec, _stacked(models), stacked=True)

    one_by_one = _stacked([initial_state(spec, model) for model in models])
    assert state.keys() == one_by_one.keys()
    assert all(torch.equal(state[name], one_by_one[name]) for name in state)
    assert state["step"].dtype == torch.int64


@pytest.mark.parametrize("spec", SPECS)
def test_training_goes_on_identically_from_a_saved_state(spec: OptimizerSpec) -> None:
    parameters = _random_tensors(0)
    state = initial_state(spec, parameters)
    _train(spec, parameters, state, range(1, 8))
    restored = {name: tensor.clone() for name, tensor in parameters.items()}
    restored_state = {name: tensor.clone() for name, tensor in state.items()}

    _train(spec, parameters, state, range(8, 15))
    _train(spec, restored, restored_state, range(8, 15))

    assert all(torch.equal(parameters[name], restored[name]) for name in parameters)
    assert all(torch.equal(state[name], restored_state[name]) for name in state)


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (OptimizerSpec("sgd"), set()),
        (OptimizerSpec("sgd", momentum=0.9), {"momentum/w", "momentum/b"}),
        (OptimizerSpec("adam"), {"m/w", "m/b", "v/w", "v/b", "step"}),
    ],
)
def test_state_is_flat_and_named_after_the_parameters(spec: OptimizerSpec, names: set[str]) -> None:
    state = initial_state(spec, {"w": torch.ones(2, 3), "b": torch.ones(2)})

    assert set(state) == names
    assert all(tensor.count_nonzero() == 0 for tensor in state.values())


@pytest.mark.parametrize("spec", SPECS)
def test_a_step_leaves_gradients_and_the_autograd_graph_alone(spec: OptimizerSpec) -> None:
    parameters = {name: t.requires_grad_() for name, t in _random_tensors(0).items()}
    gradients = _random_tensors(1)
    state = initial_state(spec, parameters)

    step(spec, parameters, gradients, state, learning_rate=0.1)

    before = _random_tensors(1)
    assert all(torch.equal(gradients[name], before[name]) for name in gradients)
    assert all(tensor.is_leaf and tensor.requires_grad for tensor in parameters.values())
    assert not any(tensor.requires_grad for tensor in state.values())


def test_adam_with_learning_rate_zero_moves_nothing() -> None:
    spec = OptimizerSpec("adam")
    parameters = _random_tensors(0)
    zero_gradients = {name: torch.zeros_like(t) for name, t in parameters.items()}

    step(spec, parameters, zero_gradients, initial_state(spec, parameters), learning_rate=0.0)

    assert all(torch.equal(parameters[name], t) for name, t in _random_tensors(0).items())


def _twenty_steps_of_both(spec: OptimizerSpec, dtype: torch.dtype) -> tuple[Tensors, Tensors]:
    ours = _random_tensors(0, dtype)
    state = initial_state(spec, ours)
    torchs = {name: t.requires_grad_() for name, t in _random_tensors(0, dtype).items()}
    constants: dict[str, Any] = {"weight_decay": spec.weight_decay}
    optimizer: torch.optim.Optimizer
    if spec.kind == "sgd":
        optimizer = torch.optim.SGD(torchs.values(), momentum=spec.momentum, **constants)
    else:
        optimizer = torch.optim.Adam(torchs.values(), betas=spec.betas, eps=spec.eps, **constants)
    for turn in range(1, 21):
        gradients = _random_tensors(turn, dtype)
        learning_rate = 0.1 / turn  # it follows the round, so it changes between steps
        step(spec, ours, gradients, state, learning_rate)
        optimizer.param_groups[0]["lr"] = learning_rate
        for name, parameter in torchs.items():
            parameter.grad = gradients[name]
        optimizer.step()
    return ours, {name: t.detach() for name, t in torchs.items()}


def _train(spec: OptimizerSpec, parameters: Tensors, state: State, seeds: range) -> None:
    for seed in seeds:
        step(spec, parameters, _random_tensors(seed), state, learning_rate=0.1)


def _random_tensors(seed: int, dtype: torch.dtype = torch.float64) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in SHAPES.items()
    }


def _stacked(tensors: list[Tensors]) -> Tensors:
    return {name: torch.stack([each[name] for each in tensors]) for name in tensors[0]}
