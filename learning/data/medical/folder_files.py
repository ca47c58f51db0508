"""List the files below a folder without ever leaving it."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from learning.data.examples import DataError
from learning.data.sources import check_file

# A hospital's largest PACS exports; a listing of more is a mistake in data-dir.
_MOST_FILES = 5_000_000
_MOST_BYTES = 1 << 30  # of a file: a volume in one file


@dataclass(frozen=True)
class FoundFile:
    """A regular file below the folder, and what the system says about it."""

    name: str
    """Its path from the folder, with slashes."""

    path: Path
    stat: os.stat_result

    @property
    def signature(self) -> tuple[int, int, int, int]:
        """Changes whenever the file's content does."""
        found = self.stat
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def files_below(root: Path) -> tuple[list[FoundFile], dict[str, str]]:
    """Return the regular files below `root`, sorted by name, and by name what is none.

    A link is followed only to a file inside the folder: what lies outside was not meant to be
    trained on. Hidden files are skipped; operating systems write them.
    """
    home = Path(os.path.realpath(root))
    files: list[FoundFile] = []
    problems: dict[str, str] = {}

    def unreadable(error: OSError) -> None:
        place = Path(error.filename)
        problems[_name(place, root)] = f"{place}: {error.strerror}; make it readable"

    for folder, folders, names in os.walk(root, onerror=unreadable):
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = sorted(f for f in folders if not _is_skipped(f) and f not in linked)
        for name in [*linked, *names]:
            path = Path(folder) / name
            if _is_skipped(name):
                continue
            try:
                files.append(FoundFile(_name(path, root), path, _checked(path, home)))
            except DataError as error:
                problems[_name(path, root)] = str(error)
            if len(files) + len(problems) > _MOST_FILES:
                raise DataError(f"{root}: more than {_MOST_FILES:,} files; correct data-dir")
    return sorted(files, key=lambda file: file.name), problems


def _checked(path: Path, home: Path) -> os.stat_result:
    if stat.S_ISLNK(path.lstat().st_mode):
        target = Path(os.path.realpath(path))
        if path.exists() and not target.is_relative_to(home):
            raise DataError(f"{path}: a link out of the data folder; put a copy in its place")
    return check_file(path, _MOST_BYTES)


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
