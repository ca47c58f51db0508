"""The last line of a test run: what was skipped, and how to run it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

# A word of the reason for skipping, what it stands for, and what to do about it.
_KINDS = (
    ("docker", "need Docker", "start an engine or set DOCKER_HOST"),
    ("feddc_data", "need data sets", "set FEDDC_DATA to their folder"),
    ("nginx", "need nginx", "apt-get install nginx-light"),
    ("root", "need root", "run as root"),
)
# Markers of tests that -m leaves out, and what runs them.
_LEFT_OUT = {"long": "make test-long", "slow": "make test-slow"}
_COUNTS = pytest.StashKey[dict[str, int]]()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count the slow and long tests that -m left out."""
    for item in items:
        chosen = item.config.option.markexpr
        marks = [name for name in _LEFT_OUT if item.get_closest_marker(name)]
        if marks and re.search(r"\bnot\b.*\b(slow|long)\b", chosen):
            counts = item.config.stash.setdefault(_COUNTS, {})
            counts[marks[0]] = counts.get(marks[0], 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With xdist, tell the controller, which collects nothing itself."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left-out"] = session.config.stash.get(_COUNTS, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Every worker collects all tests: the counts are the same.
    node.config.stash[_COUNTS] = getattr(node, "workeroutput", {}).get("left-out", {})


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the line below everything else that pytest writes."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput") or config.option.collectonly:
        return
    reasons = (str(report.longrepr[2]) for report in reporter.stats.get("skipped", ()))
    if line := summary(reasons, config.stash.get(_COUNTS, {})):
        reporter.write_line(line)


def summary(reasons: Iterable[str], left_out: Mapping[str, int]) -> str:
    """Return the line, which is empty if nothing was skipped."""
    counts = Counter(_kind(reason) for reason in reasons)
    parts = [f"{count} {what}" for what, count in sorted(counts.items())]
    parts += [f"{left_out[name]} {name} ({_LEFT_OUT[name]})" for name in sorted(left_out)]
    return f"skipped: {', '.join(parts)}" if parts else ""


def _kind(reason: str) -> str:
    for word, what, how in _KINDS:
        if word in reason.lower():
            return f"{what} ({how})"
    return reason.removeprefix("Skipped: ")
