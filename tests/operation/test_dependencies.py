"""Every package that is imported is declared in pyproject.toml."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {path.name for path in (*ROOT.iterdir(), *ROOT.glob("examples/*/*")) if path.is_dir()}
OURS |= {path.stem for path in ROOT.glob("docker/local/*.py")}
PRODUCT = ("feddc", "server_app", "client_app", "strategies", "protocol", "operation", "learning")
PRODUCT += ("lab",)


def imported(*folders: str) -> set[str]:
    """Return the distributions that the modules of these folders import."""
    names = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(str(node.module).partition(".")[0])
    distributions = packages_distributions()
    return {
        canonicalize_name(distributions.get(name, [name])[0])
        for name in names - set(sys.stdlib_module_names) - OURS
    }


def declared(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


def of_flowers_extras() -> set[str]:
    """Return what Flower's declared extras bring, in the version that Flower tests."""
    extras = next(r.extras for r in map(Requirement, PROJECT["dependencies"]) if r.name == "flwr")
    return {"ray"} if "simulation" in extras else set()


def extras() -> set[str]:
    """Return the packages of the extras that users install."""
    groups = PROJECT["optional-dependencies"].items()
    return declared([package for name, group in groups if name != "dev" for package in group])


def test_every_import_of_the_product_is_declared_and_nothing_else_is() -> None:
    needed, found = declared(PROJECT["dependencies"]), imported(*PRODUCT)
    assert needed <= found
    assert found <= needed | extras() | of_flowers_extras()


def test_every_import_of_tests_and_benchmarks_is_declared() -> None:
    development = PROJECT["optional-dependencies"]["dev"]

    everything = declared([*PROJECT["dependencies"], *development]) | extras()
    everything |= of_flowers_extras()
    # Runs in an environment of its own while an image is built: docker/requirements/sbom.in.
    everything |= {"cyclonedx", "packageurl"}

    assert imported("tests", "benchmarks", "docker", "examples") - everything == set()


def test_the_help_of_positional_arguments_is_not_lost() -> None:
    ranges = {
        Requirement(text).name: Requirement(text).specifier for text in PROJECT["dependencies"]
    }

    assert "8.5.0" not in ranges["click"]
    assert "0.21.0" not in ranges["typer"]
