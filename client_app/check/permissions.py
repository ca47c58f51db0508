"""Check who can reach the agent's secrets (only the agent) and its socket (also the courier)."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from client_app.hospital_folder import IMAGE_FOLDER
from client_app.state.experiment_keys import KEY_FOLDER
from client_app.unix_groups import group_name, user_name, users_in_group

from .finding import Finding

_ACL = "system.posix_acl_access"
_FOLDERS = {KEY_FOLDER: "keys", IMAGE_FOLDER: "images"}  # of the state folder


def check_state_folder(folder: Path) -> Iterator[Finding]:
    """Check that the state folder and everything in it belong to the agent's user alone."""
    yield from _check_folder("state", folder, modes=(0o700,), group=None)
    yield from _check_files(folder)
    for name, subject in _FOLDERS.items():
        if _can_list(folder) and os.path.lexists(folder / name):
            yield from _check_folder(subject, folder / name, modes=(0o700,), group=None)
    yield from _check_files(folder / KEY_FOLDER)


def check_socket_folder(path: Path, group: int) -> Iterator[Finding]:
    """Check the folder of the socket at `path`: owned by the agent, open to one group, and empty.

    The group must hold no users but the agent's and the courier's.
    """
    folder = path.parent
    yield from _check_folder("socket", folder, modes=(0o750, 0o710), group=group)
    others = sorted(users_in_group(group) - {user_name(os.geteuid())})
    if len(others) > 1:
        yield _wrong(
            "socket",
            f"the group {group_name(group)} holds {', '.join(others)}, and should hold the agent's "
            "and the courier's user only",
            "create a group for these two users, and set group in [agent] of hospital.toml",
        )
    if not _can_list(folder):
        return
    entries = sorted(entry.name for entry in folder.iterdir() if entry != path)
    if entries:
        yield _wrong(
            "socket",
            f"{folder} must hold nothing but the socket, and holds {', '.join(entries)}",
            "move these files elsewhere, or give the socket a folder of its own",
        )


def _check_folder(
    subject: str, folder: Path, *, modes: tuple[int, ...], group: int | None
) -> Iterator[Finding]:
    """Check a folder's kind, owner, mode and group."""
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
        problems.append((f"{folder} is not a folder", f"create a folder: mkdir -m {mode} {shown}"))
    if status.st_uid != os.geteuid():
        owner, user = user_name(status.st_uid), user_name(os.geteuid())
        problems.append(
            (
                f"{folder} belongs to {owner}, not to {user}",
                f"run this as {owner}, or chown -R {user} {shown}",
            )
        )
    # The set-group-id bit gives nobody more rights.
    if stat.S_IMODE(status.st_mode) & ~stat.S_ISGID not in modes:
        problems.append((_mode_of(folder, status), f"chmod {mode} {shown}"))
    if group is not None and status.st_gid != group:
        problems.append(
            (
                f"{folder} has the group {group_name(status.st_gid)}, not {group_name(group)}",
                f"chgrp {group_name(group)} {shown}",
            )
        )
    if _has_access_list(folder):
        problems.append((f"{folder} has an access control list", f"setfacl -b {shown}"))
    for text, remedy in problems:
        yield _wrong(subject, text, remedy)
    if not problems:
        yield Finding(subject, "fine", _mode_of(folder, status))


def _check_files(folder: Path) -> Iterator[Finding]:
    for path in sorted(folder.iterdir()) if _can_list(folder) else ():
        status = path.lstat()
        if path.name in _FOLDERS and stat.S_ISDIR(status.st_mode):
            continue
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            yield _wrong("state", f"{path} is not a file of the agent's user", f"remove {path}")
        elif stat.S_IMODE(status.st_mode) != 0o600:
            yield _wrong("state", _mode_of(path, status), f"chmod 0600 {quote(str(path))}")


def _can_list(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)


def _wrong(subject: str, text: str, remedy: str) -> Finding:
    return Finding(subject, "wrong", text, remedy)


def _mode_of(path: Path, status: os.stat_result) -> str:
    owner = f"{user_name(status.st_uid)}:{group_name(status.st_gid)}"
    return f"{path} has the mode {stat.S_IMODE(status.st_mode):04o} ({owner})"


def _has_access_list(path: Path) -> bool:
    try:
        return _ACL in os.listxattr(path)
    except (OSError, AttributeError):  # not supported by the file system or the platform
        return False
