"""The files that images and containers are made from agree with the rest; no engine is needed."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from protocol import __version__
from server_app.study.compose import compose_file
from server_app.study.study_folder import Study, StudyFile

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def lines(name: str) -> list[str]:
    text = (DOCKER / "requirements" / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def pinned() -> dict[str, str]:
    return dict(line.split("==") for line in lines("constraints.txt"))


@pytest.mark.parametrize("dependency", PROJECT["dependencies"])
def test_the_images_have_versions_that_the_project_allows(dependency: str) -> None:
    wanted = Requirement(dependency)
    assert wanted.specifier.contains(pinned()[wanted.name])


def test_every_package_named_for_an_image_is_pinned() -> None:
    for name in ("training.txt", "coordinator.txt", "courier.txt"):
        assert set(lines(name)) <= set(pinned())


def test_the_courier_gets_no_torch() -> None:
    assert lines("courier.txt") == ["flwr"]


def test_an_image_is_made_of_the_packages_and_of_nothing_else() -> None:
    """What is not copied can't be in an image: no key, result or data from the folder."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = set(tool["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (DOCKER / "Dockerfile").read_text(), re.M)
    names = {name.removesuffix("/") for line in copied for name in line.split()}
    files = {"pyproject.toml", "README.md", "LICENSE"}
    requirements = {"docker/requirements", "docker/requirements/constraints.txt"}
    assert names == packages | files | requirements
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    assert "*" in ignore
    assert allowed == packages | files | {"docker/requirements"}


def compose(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("side", ["hospital", "coordinator"])
def test_the_compose_files_name_this_version(side: str) -> None:
    for service in compose(DOCKER / side / "compose.yaml")["services"].values():
        assert service["image"].endswith(f":${{FEDDC_VERSION:-{__version__}}}")


def test_every_setting_of_a_compose_file_is_in_its_example() -> None:
    for side in ("hospital", "coordinator"):
        used = set(re.findall(r"\$\{(\w+)", (DOCKER / side / "compose.yaml").read_text()))
        explained = set(re.findall(r"^#?(\w+)=", (DOCKER / side / "env.example").read_text(), re.M))
        assert used - explained <= {"FEDDC_PROJECT", "FEDDC_VERSION", "TORCH_INDEX"}
        assert explained <= used


def test_the_compose_file_of_a_study_is_the_projects() -> None:
    file = {"name": "hearts", "address": "fl.example.org:8443", "listen": "0.0.0.0:8443"}
    study = Study(Path("/study"), StudyFile.parse(file, source="test"))
    written = yaml.safe_load(compose_file(study))
    projects = compose(DOCKER / "coordinator" / "compose.yaml")
    assert written["services"].keys() == projects["services"].keys()
    # Where the folder, the owner and the port are is all that may differ.
    for name, service in projects["services"].items():
        own = written["services"][name]
        for key in ("build", "volumes", "ports", "user"):
            assert (key in own) == (key in service and key != "build")
            own.pop(key, None)
            service.pop(key, None)
        assert own == service
