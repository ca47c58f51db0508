"""The list of what is in an image names everything that is installed in it, and nothing else."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docker.image_sbom import document
from docker.local.federation import Federation, docker, version

ROOT = Path(__file__).parents[2]
IMAGES = ("agent", "supernode", "forwarder", "superlink", "proxy")
# Python's packages by the folders that pip made, Debian's by dpkg's own file.
LOOK = r"""
for place in /opt/feddc /usr/local; do ls -d $place/lib/python3*/site-packages/*.dist-info; done
grep -E '^(Package|Version):' /var/lib/dpkg/status
python --version
"""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("image", IMAGES)
def test_the_list_in_an_image_is_what_is_installed(image: str, federation: Federation) -> None:
    def printed(command: str) -> str:
        options = ["--rm", "--network=none", "--entrypoint=/bin/sh", f"feddc/{image}:{version()}"]
        return docker("run", *options, "-c", command).decode()

    sbom = json.loads(printed("cat /usr/share/feddc/sbom.cdx.json"))
    look = printed(LOOK)

    assert (sbom["bomFormat"], sbom["metadata"]["component"]["name"]) == (
        "CycloneDX",
        f"feddc/{image}",
    )
    python, debian, others = split(sbom["components"])
    wheels = re.findall(r"^/\S+/(\S+)-(\S+)\.dist-info$", look, re.M)
    assert {(canonical(name), number) for name, number in wheels} == python
    assert set(re.findall(r"^Package: (\S+)\nVersion: (\S+)$", look, re.M)) == debian
    assert others == {("python", look.split()[-1])}
    if image == "proxy":
        (nginx,) = [number for name, number in debian if name == "nginx"]
        assert f"ARG NGINX={nginx}\n" in (ROOT / "docker/Dockerfile").read_text()
    assert ("feddc" in dict(python)) == (image != "proxy")
    assert ("torch" in dict(python)) == (image in ("agent", "superlink"))


def split(components: list[dict[str, Any]]) -> tuple[set[tuple[str, str]], ...]:
    """Return names and versions of Python's packages, Debian's, and the rest."""
    found: tuple[set[tuple[str, str]], ...] = (set(), set(), set())
    for component in components:
        kind = component.get("purl", "pkg:pypi/")  # this project itself has no purl
        number = 0 if kind.startswith("pkg:pypi/") else 1 if kind.startswith("pkg:deb/") else 2
        name = component["name"] if number else canonical(component["name"])
        found[number].add((name, component["version"]))
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_a_component_is_listed_once_and_the_order_is_always_the_same() -> None:
    pip = {"type": "library", "name": "pip", "version": "1", "bom-ref": "pkg:pypi/pip@1"}
    idna = {"type": "library", "name": "idna", "version": "2", "bom-ref": "pkg:pypi/idna@2"}

    made = document("agent", [pip, idna, pip])

    assert made["components"] == [idna, pip]
    assert made == document("agent", [idna, pip])


def test_the_script_starts_without_the_project(tmp_path: Path) -> None:
    """In an image it runs with the tool's own environment."""
    script = (ROOT / "docker/image_sbom.py").read_text()
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"__name__ = 'loaded'\n{script}"], cwd=tmp_path
    )
    assert done.returncode == 0
