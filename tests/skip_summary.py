"""The last line of a test run: what was skipped, and how to run it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

# A word of the reason for skipping, what it stands for, and what to do about it.
_KINDS = (
    ("docker", "need Docker", "start an engine or set DOCKER_HOST"),
    ("feddc_data", "need data sets", "set FEDDC_DATA to their folder"),
    ("nginx", "need nginx", "apt-get install nginx-light"),
    ("root", "need root", "run as root"),
)
_SLOW = pytest.StashKey[int]()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count the slow tests that -m left out."""
    for item in items:
        if item.get_closest_marker("slow") and "not slow" in item.config.option.markexpr:
            item.config.stash[_SLOW] = item.config.stash.get(_SLOW, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With xdist, tell the controller, which collects nothing itself."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["slow"] = session.config.stash.get(_SLOW, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Every worker collects all tests: the counts are the same.
    node.config.stash[_SLOW] = getattr(node, "workeroutput", {}).get("slow", 0)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Write the line below everything else that pytest writes."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput") or config.option.collectonly:
        return
    reasons = (str(report.longrepr[2]) for report in reporter.stats.get("skipped", ()))
    if line := summary(reasons, config.stash.get(_SLOW, 0)):
        reporter.write_line(line)


def summary(reasons: Iterable[str], slow: int) -> str:
    """Return the line, which is empty if nothing was skipped."""
    counts = Counter(_kind(reason) for reason in reasons)
    parts = [f"{count} {what}" for what, count in sorted(counts.items())]
    if slow:
        parts.append(f"{slow} slow (make test-slow)")
    return f"skipped: {', '.join(parts)}" if parts else ""


def _kind(reason: str) -> str:
    for word, what, how in _KINDS:
        if word in reason.lower():
            return f"{what} ({how})"
    return reason.removeprefix("Skipped: ")
