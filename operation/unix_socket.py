"""A listening Unix socket for one group; an active socket of another process is never replaced."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MODE = 0o660


class SocketTaken(Exception):
    """The socket can't be made; the message says why and what to do."""


@contextmanager
def listening(path: Path, group: int) -> Iterator[socket.socket]:
    """Listen on a Unix socket that only this process's user and `group` can connect to."""
    _clear_away(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~_MODE)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise SocketTaken(f"{path}: {error.strerror}; is its folder there, and yours?") from error
    finally:
        os.umask(before)
    own = path.lstat()
    try:
        _give_to(path, group)
        listener.listen()
        yield listener
    finally:
        listener.close()
        if path.exists() and path.lstat().st_ino == own.st_ino:
            path.unlink()


def _clear_away(path: Path) -> None:
    """Remove the socket of a process that has ended."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SocketTaken(f"{path} is not a socket; move it elsewhere")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError:
            pass  # a process may be listening, too busy to answer
    raise SocketTaken(f"{path}: another process answers there; stop it first")


def _give_to(path: Path, group: int) -> None:
    try:
        os.chown(path, -1, group)
    except PermissionError as error:
        raise SocketTaken(
            f"{path}: this user is not in the group {group}; add it to the group"
        ) from error
    path.chmod(_MODE)
