"""A network and data of one's own, without an installed plug-in."""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import Dataset as TorchDataset

from learning.data import DataError, DataOptions, Dataset, Examples
from learning.data import registry as data_registry
from learning.data.partition.groups import set_apart
from learning.models import registry as model_registry

Arrays = tuple[Any, Any]
OwnModel = nn.Module | Callable[[], nn.Module]
OwnData = Arrays | TorchDataset[Any]


@contextmanager
def own_parts(model: Any, dataset: Any) -> Iterator[dict[str, str]]:
    """Yield the settings that name what was passed; names of the registries pass unchanged."""
    with ExitStack() as stack:
        names = {}
        if model is not None:
            is_name = isinstance(model, str)
            names["model"] = (
                model if is_name else stack.enter_context(model_registry.registered(_maker(model)))
            )
        if dataset is not None:
            is_name = isinstance(dataset, str)
            names["dataset"] = (
                dataset
                if is_name
                else stack.enter_context(data_registry.registered(_loader(dataset)))
            )
        yield names


def _maker(model: OwnModel) -> Callable[[], nn.Module]:
    """Return a function that makes the network anew, with initial weights from torch's seed."""
    if not isinstance(model, nn.Module):
        return model
    template = model

    def fresh() -> nn.Module:
        made = copy.deepcopy(template)
        for module in made.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
        return made

    return fresh


def _loader(data: OwnData) -> data_registry.Loader:
    features, labels = data if isinstance(data, tuple) else _stacked(data)
    features = np.asarray(features, dtype=np.float32)
    names = sorted({str(label) for label in np.asarray(labels).tolist()}, key=_order)
    numbers = np.array([names.index(str(label)) for label in np.asarray(labels).tolist()])
    if len(features) != len(numbers):
        raise DataError(f"{len(features)} examples have {len(numbers)} labels")
    examples = Examples(features, numbers.astype(np.int64))

    def load(_folder: Path | None, seed: int, options: DataOptions) -> Dataset:
        pool, test = set_apart(len(examples), None, options.test_fraction, seed)
        return Dataset("own", examples.take(pool), examples.take(test), tuple(names))

    return load


def _stacked(data: TorchDataset[Any]) -> Arrays:
    pairs = [data[index] for index in range(len(data))]  # type: ignore[arg-type]
    return np.stack([np.asarray(x) for x, _ in pairs]), np.array([int(y) for _, y in pairs])


def _order(name: str) -> tuple[int, float, str]:
    """Sort numbers as numbers: 2 before 10."""
    try:
        return 0, float(name), ""
    except ValueError:
        return 1, 0.0, name
