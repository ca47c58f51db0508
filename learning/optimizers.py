"""The update rules SGD and Adam, as functions on named tensors: one model or a stack of models.

All operations are elementwise, so the same code trains one model or, with a leading client
dimension on every tensor, many at once. The results are those of `torch.optim.SGD` and
`torch.optim.Adam`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

# Flat, so that it travels in an envelope beside the model: "momentum/<parameter>" for SGD,
# "m/<parameter>", "v/<parameter>" and "step" for Adam.
State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class OptimizerSpec:
    """An update rule and its constants; `betas` and `eps` are Adam's, `momentum` is SGD's.

    Weight decay is an L2 penalty for both, added to the gradient.
    """

    kind: Literal["sgd", "adam"]
    momentum: float = 0.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8


@torch.no_grad()
def step(
    spec: OptimizerSpec,
    parameters: Mapping[str, torch.Tensor],
    gradients: Mapping[str, torch.Tensor],
    state: State,
    learning_rate: float,
) -> None:
    """Update parameters and state in place; every parameter needs a gradient."""
    update = _Update(spec, parameters, gradients, state, learning_rate)
    if spec.kind == "sgd":
        _sgd_step(update)
    elif _fits_fused(state["step"], parameters):
        _fused_adam_step(update)
    else:
        _adam_step(update)


def initial_state(
    spec: OptimizerSpec, parameters: Mapping[str, torch.Tensor], *, stacked: bool = False
) -> State:
    """Return the state before the first step; empty for plain SGD.

    With `stacked` each model of a stack has its own step counter, so that the state can be
    permuted, reset and split model by model, like the parameters.
    """
    if spec.kind == "adam":
        state = {
            f"{moment}/{name}": torch.zeros_like(parameter)
            for moment in ("m", "v")
            for name, parameter in parameters.items()
        }
        first = next(iter(parameters.values()))
        models = first.shape[:1] if stacked else ()
        return state | {"step": torch.zeros(models, dtype=torch.int64, device=first.device)}
    if spec.momentum == 0:
        return {}
    # torch initialises the buffer with the first gradient; starting from zero gives the same.
    return {f"momentum/{name}": torch.zeros_like(value) for name, value in parameters.items()}


class _Update(NamedTuple):
    """The arguments of `step`."""

    spec: OptimizerSpec
    parameters: Mapping[str, torch.Tensor]
    gradients: Mapping[str, torch.Tensor]
    state: State
    learning_rate: float


def _sgd_step(update: _Update) -> None:
    spec, state = update.spec, update.state
    for name, parameter in update.parameters.items():
        gradient = _with_decay(update.gradients[name], parameter, spec.weight_decay)
        if spec.momentum != 0:
            gradient = state[f"momentum/{name}"].mul_(spec.momentum).add_(gradient)
        parameter.add_(gradient, alpha=-update.learning_rate)


# Adam exists twice. The rule below takes any tensors: one model, or a stack whose models have done
# different numbers of steps. torch's fused kernel takes only what `_fits_fused` accepts, but it
# makes one pass over memory, in which a large stack spends most of its time: with it the engine
# trains `benchmarks.engine`'s MLP 1.6 times as fast. Tests compare the stack with single models,
# and these with `torch.optim.Adam`.


def _adam_step(update: _Update) -> None:
    spec, state = update.spec, update.state
    beta1, beta2 = spec.betas
    # Bias corrections in float64: 1 − 0.999^step has lost half its digits in float32.
    steps = state["step"].add_(1).to(torch.float64)
    step_size = update.learning_rate / (1 - torch.pow(beta1, steps))
    root_correction = (1 - torch.pow(beta2, steps)).sqrt_()
    for name, parameter in update.parameters.items():
        gradient = _with_decay(update.gradients[name], parameter, spec.weight_decay)
        m = state[f"m/{name}"].lerp_(gradient, 1 - beta1)
        v = state[f"v/{name}"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scaled = v.sqrt().div_(_per_model(root_correction, parameter)).add_(spec.eps)
        # Into the same memory: a second temporary takes as long as all the arithmetic of a stack.
        torch.div(m, scaled, out=scaled)
        parameter.addcmul_(scaled, _per_model(step_size, parameter), value=-1)


def _fits_fused(steps: torch.Tensor, parameters: Mapping[str, torch.Tensor]) -> bool:
    """Return whether torch's fused kernel can update the stack: all models at the same step."""
    return (
        steps.ndim == 1
        and all(parameter.is_contiguous() for parameter in parameters.values())
        and bool((steps == steps[0]).all())
    )


def _fused_adam_step(update: _Update) -> None:
    spec, parameters, state = update.spec, update.parameters, update.state
    steps = state["step"].add_(1)
    # The kernel takes the step as float32, one tensor for each parameter.
    step = steps[0].to(torch.float32)
    torch._fused_adam_(
        list(parameters.values()),
        [update.gradients[name].contiguous() for name in parameters],
        [state[f"m/{name}"] for name in parameters],
        [state[f"v/{name}"] for name in parameters],
        [],
        [step] * len(parameters),
        amsgrad=False,
        lr=update.learning_rate,
        beta1=spec.betas[0],
        beta2=spec.betas[1],
        weight_decay=spec.weight_decay,
        eps=spec.eps,
        maximize=False,
    )


def _with_decay(
    gradient: torch.Tensor, parameter: torch.Tensor, weight_decay: float
) -> torch.Tensor:
    return gradient.add(parameter, alpha=weight_decay) if weight_decay != 0 else gradient


def _per_model(factor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Reshape one factor, or one per model of a stack, so that it broadcasts over `parameter`."""
    # Convert first: a float64 factor would promote the arithmetic of a float32 stack.
    factor = factor.to(parameter.dtype)
    return factor.reshape(-1, *[1] * (parameter.ndim - 1)) if factor.ndim else factor
