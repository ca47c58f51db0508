"""Find the layers of a network that are applied one after the other."""

from collections.abc import Iterator

from torch import nn


def sequences(module: nn.Module) -> Iterator[dict[str, nn.Module]]:
    """Yield the layers of every Sequential as its own mutable dictionary, in order.

    `named_children` would list a layer that is used twice only once. Subclasses are skipped: they
    may use their layers by name.
    """
    for part in list(module.modules()):
        if type(part) is nn.Sequential:
            yield part._modules
