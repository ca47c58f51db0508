"""The coordinator's journal on a file system that is really full: the last state stands."""

from pathlib import Path

import pytest

from operation.disk_space import DiskFull
from strategies.session.storage.journal import DiskJournal
from tests.small_disk import fill, small_disk


def test_a_state_or_model_that_does_not_fit_is_named_and_the_last_state_stands(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", megabytes=4) as disk:
        journal = DiskJournal(disk / "journal")
        journal.spool.put("model", b"the model")
        journal.write(lambda: {"leg": 1}, ["model"])
        filler = fill(disk)

        with pytest.raises(DiskFull, match=r"no space left for .*/next: 50\.0 kB are needed"):
            journal.spool.put("next", bytes(50_000))
        with pytest.raises(DiskFull, match=r"no space left for .*/state\.json: .* are needed"):
            journal.write(lambda: {"leg": 2, "plan": "x" * 20_000}, ["next"])
        # As a resumed run would find it.
        resumed = DiskJournal(disk / "journal")
        assert resumed.load() == {"format": 1, "leg": 1}
        assert resumed.spool.get("model") == b"the model"

        filler.unlink()
        resumed.spool.put("next", bytes(50_000))
        resumed.write(lambda: {"leg": 2}, ["next"])
        assert DiskJournal(disk / "journal").load() == {"format": 1, "leg": 2}
