"""What is shipped: the app bundle that Flower sends to every node, and the rules between packages.

A hospital's SuperNode gets the bundle from the coordinator, so that what is in it matters twice:
nothing may be missing, and nothing may be in it that was only lying around.
"""

import importlib
import io
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from flwr.cli.build import build_fab_from_disk

import protocol

PROJECT = Path(__file__).resolve().parents[1]
SHIPPED = ("feddc", "server_app", "client_app", "strategies", "protocol", "operation", "learning")
PACKAGES = (*SHIPPED, "lab")

# What people leave in a project folder. None of it may travel.
LYING_AROUND = [
    "secret_keys.json",
    "identity.json",
    "hospital.toml",
    "notes.md",
    "run.py",
    "data/x.json",
    "data/patients/records.jsonl",
    "runs/20260101-000000-abcdef/summary.json",
    "runs/20260101-000000-abcdef/metrics.jsonl",
    "keys/north.json",
    ".venv/lib/python3.11/site-packages/thing.py",
    "dist/old.py",
    "tests/conftest.py",
    "tests/helpers/data.json",
    "docs/settings.md",
    "benchmarks/envelope.py",
    "docker/compose.yaml",
    "lab/cli.py",
]


def pyproject() -> dict[str, Any]:
    with (PROJECT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def sources(package: str) -> set[str]:
    folder = PROJECT / package
    return {path.relative_to(PROJECT).as_posix() for path in folder.rglob("*.py")}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project as it is on a user's disk, with things lying around."""
    copy = tmp_path_factory.mktemp("copy") / "feddc"
    copy.mkdir()
    for name in ("pyproject.toml", ".gitignore", "README.md"):
        shutil.copy(PROJECT / name, copy / name)
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, copy / package)
    for name in LYING_AROUND:
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    return copy


@pytest.fixture(scope="module")
def shipped(project: Path) -> set[str]:
    """Return the names in the bundle that `flwr run` and `flwr build` make of the project."""
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(project))) as bundle:
        return set(bundle.namelist())


@pytest.mark.parametrize("package", SHIPPED)
def test_every_module_of_a_shipped_package_is_in_the_bundle(
    package: str, shipped: set[str]
) -> None:
    assert sources(package) - shipped == set()
    assert f"{package}/__init__.py" in shipped


def test_the_loaders_of_data_sets_are_not_taken_for_data(shipped: set[str]) -> None:
    # A .gitignore line `data/` without its slash in front would drop them.
    assert {"learning/data/__init__.py", "learning/data/registry.py"} <= shipped


def test_nothing_that_only_lay_around_is_in_the_bundle(shipped: set[str]) -> None:
    assert shipped.isdisjoint(LYING_AROUND)
    ours = {name for name in shipped if name.split("/")[0] in SHIPPED}
    assert shipped - ours == {"pyproject.toml", ".info/CONTENT"}
    assert {Path(name).suffix for name in ours} <= {".py", ".md"}


def test_no_compiled_files_or_tests_are_in_the_bundle(shipped: set[str]) -> None:
    assert not [name for name in shipped if "__pycache__" in name or "test_" in name]


def test_the_bundle_runs_by_itself(project: Path, tmp_path: Path) -> None:
    """Import both components from the unpacked bundle, where nothing else of the project is."""
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(project))) as bundle:
        bundle.extractall(tmp_path)
    components = pyproject()["tool"]["flwr"]["app"]["components"]
    code = "import importlib, sys\n"
    for component in components.values():
        module, attribute = component.split(":")
        code += f"print(type(importlib.import_module({module!r}).{attribute}).__name__)\n"
    code += "print(sys.modules['protocol'].__file__)\n"
    result = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    kinds = result.stdout.splitlines()
    assert kinds == ["ServerApp", "ClientApp", str(tmp_path / "protocol" / "__init__.py")]


def test_the_wheel_has_every_package() -> None:
    packages = pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert sorted(packages) == sorted(PACKAGES)
    for package in packages:
        assert (PROJECT / package / "__init__.py").is_file()


def test_the_command_is_where_the_package_says() -> None:
    module, function = pyproject()["project"]["scripts"]["feddc"].split(":")

    assert callable(getattr(importlib.import_module(module), function))


def test_the_version_is_said_once_and_the_same() -> None:
    assert pyproject()["project"]["version"] == protocol.__version__


def test_packages_import_only_what_they_may() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [lint, "--no-cache"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    contracts = pyproject()["tool"]["importlinter"]["contracts"]
    assert f"{len(contracts)} kept, 0 broken" in result.stdout
    assert len(contracts) >= 7
