"""Do something as another user of the machine, who has no rights but those of everybody."""

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can act as another user of this machine"
)


def as_another_user(act: Callable[[], Any]) -> Any:
    """Call a function in a process of another user, and return what it returns, through JSON.

    A fork, so that whatever is imported here need not be readable for that user.
    """
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            result = {"result": act()}
        except BaseException:
            result = {"error": traceback.format_exc()}
        with os.fdopen(writing, "w") as file:
            file.write(json.dumps(result))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        told = json.loads(file.read())
    os.waitpid(pid, 0)
    assert "error" not in told, told["error"]
    return told["result"]


def command_lines() -> list[list[str]]:
    """Return the command line of every process that is visible to the present user."""
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                lines.append((entry / "cmdline").read_bytes().decode(errors="replace").split("\0"))
            except OSError:  # ended meanwhile
                continue
    return lines


def why_unreadable(file: Path) -> str:
    """Return the kind of error with which a file can't be read, or ""."""
    try:
        file.read_bytes()
    except OSError as error:
        return type(error).__name__
    return ""
