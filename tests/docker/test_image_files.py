"""The files that images and containers are made from agree with the rest; no engine is needed."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


EXTRAS = PROJECT["optional-dependencies"]


def test_the_agent_reads_whatever_the_extras_read() -> None:
    wanted = [Requirement(line).name for line in (*EXTRAS["medical"], *EXTRAS["tables"])]
    assert sorted(lines("readers.in")) == sorted(wanted)


@pytest.mark.parametrize(
    "dependency", [*PROJECT["dependencies"], *EXTRAS["medical"], *EXTRAS["tables"]]
)
def test_the_images_have_versions_that_the_project_allows(dependency: str) -> None:
    wanted = Requirement(dependency)
    assert wanted.specifier.contains(pinned()[wanted.name])


LOCKED = ("training", "readers", "courier", "coordinator", "build", "sbom")


@pytest.mark.parametrize("name", LOCKED)
def test_every_package_of_an_image_has_one_version_and_hashes(name: str) -> None:
    text = (DOCKER / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text, "an index's address"
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.M).strip())
    versions = {canonicalize_name(key): value for key, value in pinned().items()}
    found = set()
    for entry in entries:
        package = Requirement(entry.split("\\")[0])
        (specifier,) = package.specifier
        assert specifier.operator == "=="
        assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)) > 0
        assert versions.get(canonicalize_name(package.name), specifier.version) == specifier.version
        found.add(canonicalize_name(package.name))
    assert {canonicalize_name(wanted) for wanted in lines(f"{name}.in")} <= found
    assert "triton" not in found


def test_what_an_image_runs_with_is_what_the_tests_ran_with() -> None:
    """Packages for building images need not be pinned besides; those in an image are."""
    for name in ("training", "readers", "courier", "coordinator"):
        text = (DOCKER / "requirements" / f"{name}.txt").read_text()
        names = {canonicalize_name(key) for key in pinned()}
        for line in re.findall(r"^[\w.-]+==.*?(?= \\)", text, re.M):
            package = Requirement(line)
            if package.marker is None or package.marker.evaluate({"sys_platform": "linux"}):
                assert canonicalize_name(package.name) in names


def test_the_courier_gets_no_torch() -> None:
    assert lines("courier.in") == ["flwr"]
    assert not re.search(r"^torch", (DOCKER / "requirements" / "courier.txt").read_text(), re.M)


def test_every_package_is_installed_by_its_hash() -> None:
    """The project's own wheel is the exception: it comes from the stage that built it."""
    steps = re.findall(r"^RUN .*?(?<!\\)$", dockerfile(), re.M | re.S)
    installs = [step for step in steps if "pip install" in step]
    assert len(installs) == 10
    for step in installs:
        own = "--no-index" in step and step.rstrip().endswith("/wheel/*.whl")
        assert own or ("--require-hashes" in step and "--only-binary :all:" in step), step


def test_the_base_image_needs_a_digest() -> None:
    assert "ARG BASE=python:3.11-slim-bookworm\n" in dockerfile()
    (step,) = re.findall(r'^RUN (echo "\$BASE".*?(?<!\\))$', dockerfile(), re.M | re.S)

    def built(**arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", step],
            env=dict(os.environ) | arguments,
            capture_output=True,
            text=True,
        )

    digest = "@sha256:" + 64 * "a"
    assert built(BASE=f"python:3.11-slim-bookworm{digest}", UNPINNED_BASE="").returncode == 0
    for base in ("python:3.11-slim-bookworm", f"python{digest[:-1]}", f"python{digest}0"):
        refused = built(BASE=base, UNPINNED_BASE="")
        assert refused.returncode == 1
        assert f"BASE={base} has no digest" in refused.stderr
    assert built(BASE="python:3.11-slim-bookworm", UNPINNED_BASE="1").returncode == 0


def test_nginx_has_one_version() -> None:
    assert re.search(r"^ARG NGINX=\d+\.\d+\.\d+-\S+$", dockerfile(), re.M)
    assert "nginx=$NGINX nginx-common=$NGINX" in dockerfile()


def test_every_image_lists_what_is_in_it() -> None:
    images = re.findall(r"^FROM \w+ AS (\w+)$", dockerfile(), re.M)
    listed = re.findall(r"image_sbom\.py (\w+)$", dockerfile(), re.M)
    assert listed == [name for name in images if name in listed]
    built = {
        service["build"]["target"]
        for side in ("hospital", "coordinator")
        for service in compose(DOCKER / side / "compose.yaml")["services"].values()
    }
    assert set(listed) == built
    makefile = (ROOT / "Makefile").read_text()
    assert f"IMAGES = {' '.join(listed)}\n" in makefile


def test_an_image_is_made_of_the_packages_and_of_nothing_else() -> None:
    """What is not copied can't be in an image: no key, result or data from the folder."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = set(tool["hatch"]["build"]["targets"]["wheel"]["packages"])
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (DOCKER / "Dockerfile").read_text(), re.M)
    names = {name.removesuffix("/") for line in copied for name in line.split()}
    files = {"pyproject.toml", "README.md", "LICENSE"}
    in_wheel = {"docker/coordinator/compose.yaml", "docs"}
    names = {"docker/requirements" if "requirements" in name else name for name in names}
    requirements = {"docker/requirements", "docker/image_sbom.py"}
    assert names == packages | files | requirements | in_wheel
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    assert "*" in ignore
    assert allowed == packages | files | requirements | in_wheel


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


def test_the_wheel_has_the_compose_file_and_the_docs() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    included = tool["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {
        "docker/coordinator/compose.yaml": "server_app/study/compose.yaml",
        "docs": "feddc/docs",
    }


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
