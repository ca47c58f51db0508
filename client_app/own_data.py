"""The hospital's own data as hospital.toml describes them: to train on, and held out."""

from client_app.configuration import Configuration
from learning.data import Partition
from learning.local_data import load_own


def own_partition(configuration: Configuration) -> Partition:
    """Load the data; the same examples are held out every time."""
    data = configuration.data
    return load_own(
        configuration.local,
        configuration.hospital.name,
        classes=tuple(data.classes),
        standardise=data.standardise,
    )
