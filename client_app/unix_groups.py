"""Users and groups of this machine, by name and number."""

import grp
import os
import pwd


def group_number(name: str) -> int:
    """Return the number of a group given by name or number; "" means this process's own group."""
    if not name:
        return os.getegid()
    if name.isdecimal():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ValueError(f"there is no group {name!r} on this machine") from None


def group_name(number: int) -> str:
    """Return a group's name, or its number where it has none (as in a container)."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def user_name(number: int) -> str:
    """Return a user's name, or its number where it has none (as in a container)."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def users_in_group(group: int) -> set[str]:
    """Return the names of all users whose primary or further group this is."""
    try:
        listed = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        listed = set()
    return listed | {user.pw_name for user in pwd.getpwall() if user.pw_gid == group}
