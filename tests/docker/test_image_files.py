"""The files that images and containers are made from agree with the rest; no engine is needed."""

import ast
import importlib.util
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from protocol import __version__
from server_app.study.compose import compose_file
from server_app.study.study_file import StudyFile
from server_app.study.study_folder import Study

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
    template = "docker/coordinator/compose.yaml"  # in the wheel
    requirements = {"docker/requirements", "docker/requirements/constraints.txt"}
    assert names == packages | files | requirements | {template}
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    assert "*" in ignore
    assert allowed == packages | files | {"docker/requirements", template}


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
    file = {"name": "hearts", "address": "fl.example.org:443", "listen": "0.0.0.0:8443"}
    study = Study(Path("/study"), StudyFile.parse(file, source="test"))
    written = yaml.safe_load(compose_file(study))
    expected = compose(DOCKER / "coordinator" / "compose.yaml")
    # The folder, its owner and the port are the study's; there is nothing to build from.
    user = f"${{FEDDC_UID:-{os.geteuid()}}}:${{FEDDC_GID:-{os.getegid()}}}"
    for service in (expected["x-hardened"], *expected["services"].values()):
        service.pop("build", None)
        service["user"] = user
    expected["services"]["superlink"]["volumes"][0] = ".:/study${FEDDC_LABEL:-}"
    expected["services"]["network"]["ports"] = ["443:8443"]
    proxy = expected["volumes"]["proxy"]["driver_opts"]
    proxy["o"] = proxy["o"].replace("10004", str(os.geteuid()))
    assert written == expected


def test_the_wheel_has_the_compose_file() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    included = tool["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"docker/coordinator/compose.yaml": "server_app/study/compose.yaml"}


def test_the_code_of_every_health_check_is_there() -> None:
    codes = re.findall(r'CMD \["python", "-c", ("(?:[^"\\]|\\.)*")\]', dockerfile())
    assert len(codes) == 4
    for code in map(json.loads, codes):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names), code


@pytest.mark.parametrize(
    "module", re.findall(r'"-m", "([\w.]+)"', (DOCKER / "Dockerfile").read_text())
)
def test_every_program_of_an_image_is_there(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


def dockerfile() -> str:
    return (DOCKER / "Dockerfile").read_text()
