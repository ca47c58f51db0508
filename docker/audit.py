"""Look up known vulnerabilities of the Python packages in the images: `make audit`.

Runs pip-audit on docker/requirements/*.txt. Needs internet, and fails without it: a package that
was not looked up is an error here, while pip-audit alone would report it as harmless.
"""

# ruff: noqa: T201 (prints its result)

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FILES = sorted((Path(__file__).parent / "requirements").glob("*.txt"))
WITHOUT_HASHES = "constraints.txt"  # the versions of the other files
# Run in an environment of its own, because its dependencies are not the project's.
TOOL = (str(Path(sys.executable).with_name("uv")), "tool", "run", "--quiet", "pip-audit==2.10.1")
OPTIONS = ("--disable-pip", "--require-hashes", "--format=json", "--progress-spinner=off")


class NotAudited(Exception):
    """Packages could not be looked up; the message says which, why and what to do."""


def main() -> None:
    files = [file for file in FILES if file.name != WITHOUT_HASHES]
    try:
        found = {file.name: audit(file) for file in files}
    except NotAudited as error:
        sys.exit(f"audit: {error}")
    for name, vulnerabilities in found.items():
        print(f"{name}: {len(vulnerabilities) or 'no'} known vulnerabilities")
        for line in vulnerabilities:
            print(f"  {line}")
    if any(found.values()):
        sys.exit("raise these versions in docker/requirements/constraints.txt, then `make lock`")


def audit(file: Path, tool: Sequence[str] = TOOL) -> list[str]:
    """Return the known vulnerabilities of a file's packages, a line each; NotAudited if unknown."""
    command = [*tool, *OPTIONS, "--requirement", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    try:
        return vulnerabilities(json.loads(done.stdout))
    except ValueError as error:  # it found no data, or could not be installed
        said = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise NotAudited(
            f"pip-audit could not look up {file.name}; run `make audit` where there is internet "
            f"({said[-1][:200]})"
        ) from error


def vulnerabilities(report: dict[str, Any]) -> list[str]:
    """Read pip-audit's report; NotAudited if it left out a package."""
    packages = report["dependencies"]
    if left_out := [package for package in packages if "skip_reason" in package]:
        raise NotAudited(
            f"{len(left_out)} of {len(packages)} packages were not looked up, for example "
            f"{left_out[0]['name']}: pip's index gives no vulnerability data; run `make audit` "
            "where there is internet, without an index of your own"
        )
    return [
        f"{package['name']} {package['version']}: {found['id']}, fixed in "
        f"{', '.join(found['fix_versions']) or 'no version yet'}"
        for package in packages
        for found in package["vulns"]
    ]


if __name__ == "__main__":
    main()
