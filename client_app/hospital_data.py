"""Load this hospital's examples, by the pinned codebook where the study has one."""

from client_app.configuration import Configuration
from client_app.hospital_folder import FolderError, HospitalFolder
from client_app.state.held_out_file import HeldOutFile
from learning.data import DataError, Partition
from learning.local_data import load_own
from protocol.codebook import Codebook


def load_partition(
    folder: HospitalFolder,
    configuration: Configuration,
    codebook: Codebook | None,
    *,
    record: bool = False,
) -> Partition:
    """Return the examples to train on and those held out; DataError lists all problems.

    `record` stores who is held out; from then on it does not change. Without a codebook the classes
    must be named in hospital.toml: a refusal must not depend on what is found in the data.
    """
    data = configuration.data
    file = HeldOutFile(folder.held_out_file)
    held_out = file.read()
    before = dict(held_out.recorded)
    partition = load_own(
        configuration.local,
        configuration.hospital.name,
        classes=tuple(data.classes),
        standardise=data.standardise,
        codebook=codebook,
        columns=data.columns,
        held_out=held_out,
        cache=folder.image_cache if _is_pinned(codebook, folder) else None,
    )
    if partition.classes is None:
        raise DataError(
            "the study has no codebook, so hospital.toml must name its classes, in its order: set "
            "classes in [data]"
        )
    if record and held_out.recorded != before:
        file.save(held_out)
    return partition


def _is_pinned(codebook: Codebook | None, folder: HospitalFolder) -> bool:
    """Return whether images of this codebook may be cached: the cache is for those trained on.

    An older model is evaluated by its own codebook, whose images would displace them.
    """
    try:
        roster = folder.roster()
        pinned = None if roster is None else folder.codebook(roster)
    except FolderError:
        return False
    return (codebook and codebook.digest) == (pinned and pinned.digest)
