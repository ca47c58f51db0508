"""The data set registry: built-in data sets and plug-ins, by name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from itertools import count
from pathlib import Path

from learning.data.examples import DataError, Dataset
from learning.data.options import DataOptions
from learning.data.sets.cifar10 import cifar10
from learning.data.sets.csv_file import csv_file
from learning.data.sets.embedded import breast_cancer, digits, synthetic
from learning.data.sets.heart_disease import heart_disease
from learning.data.sets.image_folder import brain_mri, chest_xray, image_folder
from learning.data.sets.medical_folder import medical_folder
from learning.data.sets.mnist import mnist
from learning.data.sets.susy import susy, susy_stand_in
from learning.names import DATASET_PLUG_INS

Loader = Callable[[Path | None, int, DataOptions], Dataset]

_BUILT_IN: dict[str, Loader] = {
    "brain-mri": brain_mri,
    "breast-cancer": breast_cancer,
    "chest-xray": chest_xray,
    "cifar10": cifar10,
    "csv": csv_file,
    "digits": digits,
    "heart-disease": heart_disease,
    "image-folder": image_folder,
    "medical-folder": medical_folder,
    "mnist": mnist,
    "susy": susy,
    "susy-stand-in": susy_stand_in,
    "synthetic": synthetic,
}

_OWN = count(1)


def load(name: str, *, folder: Path | None, seed: int, options: DataOptions) -> Dataset:
    """Read a data set from its `folder` (see `default_folder`); `seed` draws the test set."""
    plug_ins = _plug_ins()
    if name in _BUILT_IN and name in plug_ins:
        # The same descriptor must mean the same data at every hospital.
        raise DataError(
            f"data set {name!r} is built in, but {_origin(plug_ins[name])} adds another one: "
            "rename or uninstall the plug-in"
        )
    if name in _BUILT_IN:
        return _BUILT_IN[name](folder, seed, options)
    if name in plug_ins:
        return _load_plug_in(plug_ins[name], folder, seed, options)
    raise DataError(f"unknown data set {name!r}: dataset must be one of {', '.join(names())}")


@contextmanager
def registered(loader: Loader) -> Iterator[str]:
    """Make data of one's own available in this process; yield their name."""
    name = f"own-{next(_OWN)}"  # never the same: data are cached by their names
    _BUILT_IN[name] = loader
    try:
        yield name
    finally:
        del _BUILT_IN[name]


def names() -> tuple[str, ...]:
    """Return the names of all data sets, sorted."""
    return tuple(sorted(_BUILT_IN.keys() | _plug_ins().keys()))


def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=DATASET_PLUG_INS)}


def _load_plug_in(
    point: EntryPoint, folder: Path | None, seed: int, options: DataOptions
) -> Dataset:
    try:
        loader = point.load()
    except (ImportError, AttributeError) as error:
        raise DataError(
            f"data set {point.name!r}: {_origin(point)} cannot be imported ({error}): "
            "correct or uninstall it"
        ) from error
    dataset = loader(folder, seed, options)
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"data set {point.name!r}: {_origin(point)} must return a learning.data.Dataset, "
            f"got {type(dataset).__name__}"
        )
    return dataset


def _origin(point: EntryPoint) -> str:
    package = f" of package {point.dist.name}" if point.dist else ""
    return f"the entry point {point.value}{package}"
