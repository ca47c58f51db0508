"""All models of a run, stacked: one tensor per parameter, buffer and optimiser state entry."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from learning import optimizers
from learning.optimizers import OptimizerSpec
from protocol.model_bytes import ModelState, Wire

from .routes import Positions

_WIRES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass
class Stack:
    """Models in slots; each tensor has a leading dimension for the slot."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    optimizer: dict[str, Tensor]

    @staticmethod
    def of(
        like: ModelState,
        slots: int,
        spec: OptimizerSpec,
        *,
        device: torch.device,
        memory_format: torch.memory_format,
    ) -> "Stack":
        """Allocate a stack for models of this shape."""
        parameters, buffers = (
            {
                name: _room(slots, torch.from_numpy(np.asarray(array)), device, memory_format)
                for name, array in arrays.items()
            }
            for arrays in (like.parameters, like.buffers)
        )
        return Stack(parameters, buffers, optimizers.initial_state(spec, parameters, stacked=True))

    def fill(self, slots: Positions, model: ModelState, wire: Wire = "same") -> None:
        """Copy one model into slots, rounded as on the wire; optimiser state is not changed."""
        rows = torch.from_numpy(slots)
        for tensors, arrays in (
            (self.parameters, model.parameters),
            (self.buffers, model.buffers),
        ):
            for name, tensor in tensors.items():
                one = narrowed(torch.from_numpy(np.asarray(arrays[name])).to(tensor.device), wire)
                if len(slots) == len(tensor):
                    tensor.copy_(one.expand_as(tensor))
                else:
                    tensor[rows.to(tensor.device)] = one

    def narrow(self, slots: Positions, wire: Wire) -> None:
        """Round models as the wire does when they are handed on."""
        if wire == "same":
            return
        for tensors in (self.parameters, self.buffers):
            for tensor in tensors.values():
                rows = torch.from_numpy(slots).to(tensor.device)
                tensor[rows] = narrowed(tensor[rows], wire)

    def forget_optimizer(self, slots: Positions) -> None:
        """Reset the optimiser state of slots to zeros, its initial value."""
        for tensor in self.optimizer.values():
            if len(slots) == len(tensor):
                tensor.zero_()
            else:
                tensor[torch.from_numpy(slots).to(tensor.device)] = 0

    def set_steps(self, slots: Positions, steps: Positions) -> None:
        """Set the number of steps that the optimiser of each slot has made, if it counts them."""
        if (counts := self.optimizer.get("step")) is not None:
            rows = torch.from_numpy(slots).to(counts.device)
            counts[rows] = torch.from_numpy(steps).to(counts.device)

    def model(self, slot: int) -> ModelState:
        """Return one model without its optimiser state; the arrays may share the stack's memory."""
        return ModelState(
            *(
                {name: tensor[slot].cpu().numpy() for name, tensor in tensors.items()}
                for tensors in (self.parameters, self.buffers)
            )
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        return {
            f"{part}/{name}": tensor
            for part, tensors in vars(self).items()
            for name, tensor in tensors.items()
        }

    def take(self, slots: Tensor) -> "Stack":
        """Return a copy of some models."""
        return Stack(*(_picked(part, slots) for part in vars(self).values()))

    def put(self, slots: Tensor, others: "Stack") -> None:
        """Write back models that `take` returned."""
        for name, tensor in self.tensors().items():
            tensor[slots] = others.tensors()[name]

    def first(self, count: int) -> "Stack":
        """Return a view of the first models."""
        return Stack(
            *({name: tensor[:count] for name, tensor in p.items()} for p in vars(self).values())
        )


def narrowed(tensor: Tensor, wire: Wire) -> Tensor:
    """Round float32 numbers as `ModelState.to_bytes` does for this wire."""
    if wire == "same" or tensor.dtype != torch.float32:
        return tensor
    return tensor.to(_WIRES[wire]).to(torch.float32)


def _picked(part: Mapping[str, Tensor], slots: Tensor) -> dict[str, Tensor]:
    return {name: tensor[slots] for name, tensor in part.items()}


def _room(
    slots: int, one: Tensor, device: torch.device, memory_format: torch.memory_format
) -> Tensor:
    if memory_format is torch.channels_last and one.ndim == 4:
        outputs, inputs, height, width = one.shape
        room = torch.zeros(slots, outputs, height, width, inputs, dtype=one.dtype, device=device)
        return room.permute(0, 1, 4, 2, 3)
    return torch.zeros(slots, *one.shape, dtype=one.dtype, device=device)
