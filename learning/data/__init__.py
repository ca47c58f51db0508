"""Data sets by name, and how their examples are divided among hospitals.

`load` reads a data set from files that are already there; nothing is ever downloaded.
`split` gives every hospital its share. README.md says where each data set comes from.
"""

from learning.data.examples import DataError, Dataset, Examples
from learning.data.options import DataOptions
from learning.data.partition.split import Partition, SplitOptions, split
from learning.data.registry import load, names
from learning.data.sources import default_folder

__all__ = [
    "DataError",
    "DataOptions",
    "Dataset",
    "Examples",
    "Partition",
    "SplitOptions",
    "default_folder",
    "load",
    "names",
    "split",
]
