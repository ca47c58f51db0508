"""The update rules SGD and Adam, as functions on named tensors: one model or a stack of models.

Everything is elementwise, so the same lines train one model and, with a leading client dimension
on every tensor, many at once. The results are those of `torch.optim.SGD` and `torch.optim.Adam`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

# Flat, so that it travels in an envelope beside the model: "momentum/<parameter>" for SGD,
# "m/<parameter>", "v/<parameter>" and "step" for Adam.
State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class OptimizerSpec:
    """Which rule, and its constants; `betas` and `eps` are Adam's, `momentum` is SGD's.

    Weight decay is an L2 penalty in both, added to the gradient.
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
    """Update parameters and state in place; every parameter needs its gradient."""
    if spec.kind == "adam":
        _adam_step(spec, parameters, gradients, state, learning_rate)
    else:
        _sgd_step(spec, parameters, gradients, state, learning_rate)


def initial_state(
    spec: OptimizerSpec, parameters: Mapping[str, torch.Tensor], *, stacked: bool = False
) -> State:
    """Return the state before the first step; empty for plain SGD.

    For a stack of models, `stacked` gives each its own step counter, so that the state can be
    permuted, reset and taken apart model by model like the parameters.
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
    # torch starts the buffer with the first gradient; from zero the rule gives the same.
    return {f"momentum/{name}": torch.zeros_like(value) for name, value in parameters.items()}


def _sgd_step(
    spec: OptimizerSpec,
    parameters: Mapping[str, torch.Tensor],
    gradients: Mapping[str, torch.Tensor],
    state: State,
    learning_rate: float,
) -> None:
    for name, parameter in parameters.items():
        gradient = _with_decay(gradients[name], parameter, spec.weight_decay)
        if spec.momentum != 0:
            gradient = state[f"momentum/{name}"].mul_(spec.momentum).add_(gradient)
        parameter.add_(gradient, alpha=-learning_rate)


def _adam_step(
    spec: OptimizerSpec,
    parameters: Mapping[str, torch.Tensor],
    gradients: Mapping[str, torch.Tensor],
    state: State,
    learning_rate: float,
) -> None:
    if _fits_fused(state["step"], parameters):
        _fused_adam_step(spec, parameters, gradients, state, learning_rate)
        return
    beta1, beta2 = spec.betas
    # Bias corrections in float64: 1 − 0.999^step has lost half its digits in float32.
    steps = state["step"].add_(1).to(torch.float64)
    step_size = learning_rate / (1 - torch.pow(beta1, steps))
    root_correction = (1 - torch.pow(beta2, steps)).sqrt_()
    for name, parameter in parameters.items():
        gradient = _with_decay(gradients[name], parameter, spec.weight_decay)
        m = state[f"m/{name}"].lerp_(gradient, 1 - beta1)
        v = state[f"v/{name}"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scaled = v.sqrt().div_(_per_model(root_correction, parameter)).add_(spec.eps)
        # Into the same memory: a second temporary takes as long as all the arithmetic of a stack.
        torch.div(m, scaled, out=scaled)
        parameter.addcmul_(scaled, _per_model(step_size, parameter), value=-1)


def _fits_fused(steps: torch.Tensor, parameters: Mapping[str, torch.Tensor]) -> bool:
    """Tell whether torch's fused kernel can take the stack: it knows one step for all models."""
    return (
        steps.ndim == 1
        and all(parameter.is_contiguous() for parameter in parameters.values())
        and bool((steps == steps[0]).all())
    )


def _fused_adam_step(
    spec: OptimizerSpec,
    parameters: Mapping[str, torch.Tensor],
    gradients: Mapping[str, torch.Tensor],
    state: State,
    learning_rate: float,
) -> None:
    """Do the same in one pass over memory, which a large stack spends most of its time on."""
    beta1, beta2 = spec.betas
    steps = state["step"].add_(1)
    # It takes the step as a float32, one tensor for each parameter.
    step = steps[0].to(torch.float32)
    torch._fused_adam_(
        list(parameters.values()),
        [gradients[name].contiguous() for name in parameters],
        [state[f"m/{name}"] for name in parameters],
        [state[f"v/{name}"] for name in parameters],
        [],
        [step] * len(parameters),
        amsgrad=False,
        lr=learning_rate,
        beta1=beta1,
        beta2=beta2,
        weight_decay=spec.weight_decay,
        eps=spec.eps,
        maximize=False,
    )


def _with_decay(
    gradient: torch.Tensor, parameter: torch.Tensor, weight_decay: float
) -> torch.Tensor:
    return gradient.add(parameter, alpha=weight_decay) if weight_decay != 0 else gradient


def _per_model(factor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Shape one number, or one per model of a stack, for multiplying `parameter`."""
    # Of the parameter's type first: float64 here would pull a float32 stack's arithmetic with it.
    factor = factor.to(parameter.dtype)
    return factor.reshape(-1, *[1] * (parameter.ndim - 1)) if factor.ndim else factor
