"""Who can reach the agent's secrets and its socket: exactly the agent, and exactly the courier."""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Literal

_ACL = "system.posix_acl_access"


@dataclass(frozen=True)
class Finding:
    """What a check found; with anything wrong the agent does not start."""

    subject: str
    verdict: Literal["fine", "warning", "wrong"]
    text: str
    remedy: str = ""


def guard_state(folder: Path) -> Iterator[Finding]:
    """Check that the state folder and everything in it are the agent's alone."""
    yield from _guard("state", folder, modes=(0o700,), group=None)
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
        return
    for path in sorted(folder.iterdir()):
        status = path.lstat()
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            yield _wrong("state", f"{path} is not a file of the agent's user", f"remove {path}")
        elif stat.S_IMODE(status.st_mode) != 0o600:
            yield _wrong("state", _has_mode(path, status), f"chmod 0600 {quote(str(path))}")


def guard_socket_folder(path: Path, group: int) -> Iterator[Finding]:
    """Check the folder of the socket at `path`: the agent's, passable for one group, and empty."""
    folder = path.parent
    yield from _guard("socket", folder, modes=(0o750, 0o710), group=group)
    yield from _guard_group(group)
    if not folder.is_dir() or not os.access(folder, os.R_OK | os.X_OK):
        return
    others = sorted(entry.name for entry in folder.iterdir() if entry != path)
    if others:
        yield _wrong(
            "socket",
            f"{folder} must hold nothing but the socket, and holds {', '.join(others)}",
            "move that elsewhere, or give the socket a folder of its own",
        )


def group_number(name: str) -> int:
    """Return the number of a group given by name or number; "" is the agent's own."""
    if not name:
        return os.getegid()
    if name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ValueError(f"there is no group {name!r} on this machine") from None


def _guard(
    subject: str, folder: Path, *, modes: tuple[int, ...], group: int | None
) -> Iterator[Finding]:
    """Check a folder's kind, owner, mode and group; one finding says that all is well."""
    shown, mode = quote(str(folder)), f"{modes[0]:04o}"
    try:
        status = folder.lstat()
    except FileNotFoundError:
        yield _wrong(subject, f"{folder} is missing", f"mkdir -m {mode} {shown}")
        return
    except OSError as error:
        yield _wrong(subject, f"{folder}: {error.strerror}", "run this as the agent's user")
        return
    problems = []
    if not stat.S_ISDIR(status.st_mode):
        problems.append((f"{folder} is not a folder", f"put a folder there: mkdir -m {mode}"))
    if status.st_uid != os.geteuid():
        problems.append(
            (
                f"{folder} belongs to {_user(status.st_uid)}, not to {_user(os.geteuid())}",
                f"run this as {_user(status.st_uid)}, or chown -R {_user(os.geteuid())} {shown}",
            )
        )
    # A folder that hands its group down is no looser for it.
    if stat.S_IMODE(status.st_mode) & ~stat.S_ISGID not in modes:
        problems.append((_has_mode(folder, status), f"chmod {mode} {shown}"))
    if group is not None and status.st_gid != group:
        problems.append(
            (
                f"{folder} has the group {_group(status.st_gid)}, not {_group(group)}",
                f"chgrp {_group(group)} {shown}",
            )
        )
    if _has_access_list(folder):
        problems.append((f"{folder} has an access control list", f"setfacl -b {shown}"))
    for text, remedy in problems:
        yield _wrong(subject, text, remedy)
    if not problems:
        yield Finding(subject, "fine", _has_mode(folder, status))


def _guard_group(group: int) -> Iterator[Finding]:
    """Check that at most one user besides the agent's, the courier's, is in the group."""
    try:
        listed = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        listed = set()  # known by its number only, as in a container
    users = listed | {user.pw_name for user in pwd.getpwall() if user.pw_gid == group}
    others = sorted(users - {_user(os.geteuid())})
    if len(others) > 1:
        yield _wrong(
            "socket",
            f"the group {_group(group)} holds {', '.join(others)}, and should hold the agent's "
            "and the courier's user only",
            "make a group for these two, and set group in [agent] of hospital.toml",
        )


def _wrong(subject: str, text: str, remedy: str) -> Finding:
    return Finding(subject, "wrong", text, remedy)


def _has_mode(path: Path, status: os.stat_result) -> str:
    owner = f"{_user(status.st_uid)}:{_group(status.st_gid)}"
    return f"{path} has the mode {stat.S_IMODE(status.st_mode):04o} ({owner})"


def _has_access_list(path: Path) -> bool:
    try:
        return _ACL in os.listxattr(path)
    except (OSError, AttributeError):  # the file system or the system knows none
        return False


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
