"""Data sets by name, and the partitioning of their examples among hospitals.

`load` reads a data set from local files; nothing is ever downloaded. `split` creates a partition
for every hospital. README.md lists the sources of the data sets.
"""

from learning.data.examples import IN_BOTH, DataError, Dataset, Examples
from learning.data.options import DataOptions
from learning.data.partition.split import Partition, SplitOptions, split
from learning.data.registry import load, names
from learning.data.sources import default_folder

__all__ = [
    "IN_BOTH",
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
