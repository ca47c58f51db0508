"""Write the SBOM of an image, in CycloneDX's JSON format, from what is installed in it.

The Dockerfile runs it at the end of each image: `python image_sbom.py IMAGE`. The Python packages
are found by cyclonedx-py, the Debian packages by dpkg; Python itself, which is neither, is added.
Libraries inside a Python package (numpy's OpenBLAS, for example) are not listed by themselves.
"""

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

FILE = Path("/usr/share/feddc/sbom.cdx.json")
OURS = "/opt/feddc/bin/python"  # the environment that the image's programs run in
BASE = "/usr/local/bin/python3"  # the base image's own, with pip
_VERSION = "1.6"  # of CycloneDX's format


def main() -> None:
    """Collect, check against CycloneDX's schema, write."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    found = [*_python_packages(OURS), *_python_packages(BASE), *_debian_packages(), _python()]
    text = json.dumps(document(sys.argv[1], found), indent=1)
    if problem := JsonStrictValidator(SchemaVersion.from_version(_VERSION)).validate_str(text):
        sys.exit(f"the SBOM does not follow CycloneDX's schema: {problem}")
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text + "\n")


def document(image: str, components: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the SBOM of an image: each component once, sorted, and without a date."""
    unique = {component["bom-ref"]: component for component in components}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _VERSION,
        "version": 1,
        "metadata": {"component": {"type": "container", "name": f"feddc/{image}"}},
        "components": [unique[reference] for reference in sorted(unique)],
    }


def _python_packages(interpreter: str) -> list[dict[str, Any]]:
    tool = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    command = [*tool, "--output-format", "JSON", "--spec-version", _VERSION, interpreter]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603
    components: list[dict[str, Any]] = json.loads(printed).get("components", [])
    # A package that no index has, this project, has no purl.
    return [
        component | {"bom-ref": component.get("purl", component["bom-ref"])}
        for component in components
    ]


def _debian_packages() -> list[dict[str, Any]]:
    fields = "${Package}\t${Version}\t${Architecture}\n"
    command = ["dpkg-query", "--show", f"--showformat={fields}"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603
    return [debian_package(*line.split("\t")) for line in printed.splitlines()]


def debian_package(name: str, version: str, architecture: str) -> dict[str, Any]:
    """Return the component of a Debian package."""
    from packageurl import PackageURL

    purl = PackageURL("deb", "debian", name, version, {"arch": architecture}).to_string()
    return {"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl}


def _python() -> dict[str, Any]:
    purl = f"pkg:generic/python@{platform.python_version()}"
    version = platform.python_version()
    return {
        "type": "platform",
        "name": "python",
        "version": version,
        "purl": purl,
        "bom-ref": purl,
        "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*",
    }


if __name__ == "__main__":
    main()
