"""The wheel installs with each extra and with none.

What this proves: the built wheel installs into an empty environment without its dependencies and
its command starts, shows the shipped documentation and packaged files; and for each extra, every
requirement that the wheel's metadata names is met by a version that is installed where the tests
run, where the extra is there at all. `tests/test_wheel_extras.py`, a long test, installs each extra
with all its dependencies into an environment of its own.
"""

import os
import re
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.snippets import ROOT
from tests.test_packaging import pyproject

EXTRAS = sorted(pyproject()["project"]["optional-dependencies"])
NOT_IN_DEV = {"monai"}  # `make install` does not bring it


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "."],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("feddc-*.whl")
    return made


def requirements(wheel: Path, extra: str) -> list[Requirement]:
    """Return what the wheel's own metadata requires for an extra, or for none."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    if not extra:
        return [one for one in found if one.marker is None]
    return [one for one in found if one.marker and one.marker.evaluate({"extra": extra})]


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_what_an_extra_requires_is_met_here(wheel: Path, extra: str) -> None:
    needed = requirements(wheel, extra)
    assert needed
    for one in needed:
        if one.name == "feddc":  # dev brings other extras
            assert one.extras <= set(EXTRAS)
            continue
        try:
            installed = version(one.name)
        except PackageNotFoundError:
            assert extra in NOT_IN_DEV, f"{one} is not installed"
            continue
        assert one.specifier.contains(installed, prereleases=True), f"{one}, but {installed}"


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_pip_accepts_the_wheel_with_the_extra(wheel: Path, extra: str, tmp_path: Path) -> None:
    given = f"{wheel}[{extra}]" if extra else str(wheel)
    target = ["--no-deps", "--no-index", "--target", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *target, given],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "does not provide the extra" not in done.stdout + done.stderr
    assert (tmp_path / "operation" / "cli.py").is_file()


@pytest.mark.slow
def test_the_installed_command_starts_and_has_its_files(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    # The dependencies come from the environment of the tests, the project from the wheel alone.
    packages = next(place.glob("lib/python*/site-packages"))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps",
         "--no-index", "--quiet", str(wheel)],
        check=True,
    )  # fmt: skip
    others = [p for p in sys.path if p.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others), encoding="utf-8")

    def feddc(*words: str) -> str:
        done = subprocess.run(
            [place / "bin" / "feddc", *words],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert re.fullmatch(r"feddc \d+\.\d+\.\d+\n", feddc("--version"))
    assert str(packages / "feddc" / "docs") in feddc("docs", "--path")
    feddc("coordinator", "init", "--name", "heart", "--address", "localhost:8443")
    assert "synthetic" in feddc("lab", "list")
