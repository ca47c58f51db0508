"""The layers of a network that stand in a row, where they may be rearranged."""

from collections.abc import Iterator

from torch import nn


def sequences(module: nn.Module) -> Iterator[dict[str, nn.Module]]:
    """Yield the layers of every Sequential, by name and in order; changing them changes it.

    Not `named_children`, which names a layer that stands in two places once. A subclass may use its
    layers by name, and is left alone.
    """
    for part in list(module.modules()):
        if type(part) is nn.Sequential:
            yield part._modules
