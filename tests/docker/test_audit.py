"""`make audit` reports what was looked up, and never takes a missing answer for a good one."""

import sys
from pathlib import Path
from typing import Any

import pytest

from docker.audit import NotAudited, audit, vulnerabilities

SAFE: dict[str, Any] = {"name": "idna", "version": "3.20", "vulns": []}
UNSAFE: dict[str, Any] = {
    "name": "jinja2",
    "version": "2.4.1",
    "vulns": [
        {"id": "PYSEC-2021-66", "fix_versions": ["2.11.3"], "aliases": [], "description": "…"},
        {"id": "PYSEC-2099-1", "fix_versions": [], "aliases": [], "description": "…"},
    ],
}
LEFT_OUT = {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def test_vulnerabilities_are_named_with_their_remedy() -> None:
    assert vulnerabilities({"dependencies": [SAFE], "fixes": []}) == []
    assert vulnerabilities({"dependencies": [SAFE, UNSAFE], "fixes": []}) == [
        "jinja2 2.4.1: PYSEC-2021-66, fixed in 2.11.3",
        "jinja2 2.4.1: PYSEC-2099-1, fixed in no version yet",
    ]


def test_a_package_that_was_not_looked_up_is_an_error() -> None:
    """Seen: behind a mirror, pip-audit skipped everything and ended with success."""
    with pytest.raises(NotAudited, match=r"1 of 2 packages were not looked up, for example torch"):
        vulnerabilities({"dependencies": [SAFE, LEFT_OUT], "fixes": []})


def test_without_internet_it_says_so_in_one_line(tmp_path: Path) -> None:
    """Seen: pip-audit ends with a traceback of its HTTP library."""
    tool = [sys.executable, "-c", "raise ConnectionError('Failed to resolve the name')"]

    with pytest.raises(NotAudited) as caught:
        audit(tmp_path / "training.txt", tool)

    said = str(caught.value)
    assert "\n" not in said
    assert (
        "pip-audit could not look up training.txt; run `make audit` where there is internet" in said
    )
    assert "Failed to resolve the name" in said
