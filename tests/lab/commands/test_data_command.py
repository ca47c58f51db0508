"""What of the data is there: `feddc lab data`, `feddc lab list`, and what a run needs."""

import gzip
import zipfile
from pathlib import Path

import pytest

from lab import data_files
from lab.commands.data_command import rows
from lab.experiments import ExperimentError, load_experiment
from lab.experiments.readiness import check_ready, state


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDDC_DATA", str(tmp_path))
    return tmp_path


def some_of_cifar10(root: Path, train: int, test: int) -> None:
    (root / "cifar10").mkdir()
    with zipfile.ZipFile(root / "cifar10" / "some.zip", "w") as archive:
        archive.writestr("train/", "")
        for part, count in (("train", train), ("test", test)):
            for number in range(count):
                archive.writestr(f"{part}/cat/{number}.jpg", b"")


def idx(*sizes: int) -> bytes:
    header = bytes([0, 0, 8, len(sizes)]) + b"".join(size.to_bytes(4) for size in sizes)
    values = 1
    for size in sizes:
        values *= size
    return header + bytes(values)


def some_of_mnist(root: Path) -> Path:
    raw = root / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 5), ("t10k", 3)):
        for name, sizes in (("images-idx3", (count, 28, 28)), ("labels-idx1", (count,))):
            (raw / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(idx(*sizes), mtime=0))
    return raw


def test_a_part_of_a_data_set_is_called_a_part_and_what_does_not_fit_is_refused(data: Path) -> None:
    some_of_cifar10(data, 6000, 100)
    sizes = load_experiment("cifar10-sizes")
    # 150 hospitals with 256 and 8 held out; on a laptop 40 with 128 and 8.
    needs = "needs 39,600 training examples, 6,000 are there (part: 6,100 of 60,000)"
    assert state(sizes) == f"laptop ready; desk ready; full {needs}"
    check_ready(sizes, "laptop")
    with pytest.raises(ExperimentError) as refused:
        check_ready(sizes, "full")
    assert str(refused.value) == (
        f"cifar10-sizes: the full preset {needs}; `feddc lab data` shows where to get the rest"
    )
    small = state(load_experiment("cifar10-minibatch"))
    assert small.startswith("laptop ready; desk ready; full needs ")


def test_a_part_that_suffices_is_ready(data: Path) -> None:
    some_of_cifar10(data, 12_000, 10_000)
    assert state(load_experiment("cifar10")) == "ready (part: 22,000 of 60,000)"


def test_examples_are_counted_without_reading_them(data: Path) -> None:
    binary = data / "cifar10" / "cifar-10-batches-bin"
    binary.mkdir(parents=True)
    for number in range(1, 6):
        (binary / f"data_batch_{number}.bin").write_bytes(bytes(3073 * 4))
    (binary / "test_batch.bin").write_bytes(bytes(3073 * 3))
    assert data_files.count_examples("cifar10", data / "cifar10") == (20, 3)
    some_of_mnist(data)
    assert data_files.count_examples("mnist", data / "mnist") == (5, 3)
    for path in ("train/NORMAL/a.jpeg", "train/PNEUMONIA/b.jpeg", "test/NORMAL/c.jpeg"):
        (data / "chest_xray" / path).parent.mkdir(parents=True, exist_ok=True)
        (data / "chest_xray" / path).touch()
    assert data_files.count_examples("chest-xray", data / "chest_xray") == (2, 1)
    assert data_files.count_examples("mnist", data / "nowhere") is None
    assert data_files.count_examples("heart-disease", data) is None


def test_published_files_are_compared_with_their_digests(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> str:
        return next(row.state for row in rows() if row.name == "mnist")

    raw = some_of_mnist(data)
    names = sorted(path.name for path in raw.iterdir())
    assert found() == f"damaged: {', '.join(names)} have another MD5"
    digests = {name: data_files._md5(raw / name) for name in names}
    monkeypatch.setitem(data_files._PUBLISHED, "mnist", digests)
    assert found() == "part: 8 of 70,000"
    monkeypatch.setitem(data_files.COMPLETE, "mnist", 8)
    assert found() == "intact: the publisher's MD5"
    # Unpacked, nothing is published to compare with.
    for name in names:
        path = raw / name
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert found() == "complete by count"


def test_a_preset_with_a_data_set_of_its_own_needs_that_one(data: Path) -> None:
    privacy = load_experiment("privacy")  # digits on a laptop, otherwise CIFAR10
    assert state(privacy).startswith("laptop ready; desk needs $FEDDC_DATA/cifar10/ ")
    check_ready(privacy, "laptop")
    with pytest.raises(ExperimentError, match=r"privacy: needs \$FEDDC_DATA/cifar10/"):
        check_ready(privacy, "full")
