"""Check what must be right before an agent starts: permissions, identity, roster, network."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from client_app.configuration import Configuration
from client_app.enrol.enrolment import why_not_member
from client_app.hospital_folder import FolderError, HospitalFolder
from client_app.unix_groups import group_number
from protocol.study.roster import Roster, fingerprint

from .finding import Finding
from .permissions import check_socket_folder, check_state_folder

_INTERFACES = Path("/sys/class/net")
_UP, _LOOPBACK = 0x1, 0x8


def check_essentials(folder: HospitalFolder, configuration: Configuration) -> Iterator[Finding]:
    """Check what an agent needs to start, except its data, which it checks by loading them."""
    yield from _configuration(configuration)
    yield from check_state_folder(folder.state)
    yield from _roster(folder, configuration)
    try:
        group = group_number(configuration.agent.group)
    except ValueError as error:
        yield Finding("socket", "wrong", str(error), "create it: groupadd, then usermod -aG")
    else:
        yield from check_socket_folder(configuration.socket, group)
    yield from _network()


def _configuration(configuration: Configuration) -> Iterator[Finding]:
    path = configuration.path
    mode = path.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield Finding(
            "configuration", "wrong", f"{path} can be changed by others", f"chmod 0600 {path}"
        )
    elif mode & (stat.S_IRGRP | stat.S_IROTH):
        yield Finding(
            "configuration", "warning", f"{path} can be read by others", f"chmod 0600 {path}"
        )
    else:
        yield Finding("configuration", "fine", f"{path}, for {configuration.hospital.name}")


def _roster(folder: HospitalFolder, configuration: Configuration) -> Iterator[Finding]:
    name = configuration.hospital.name
    try:
        identity = folder.identity().public
    except FolderError as error:
        remedy = "restore it, or create a new one with `feddc hospital init`"
        yield Finding("identity", "wrong", str(error), remedy)
        return
    yield Finding("identity", "fine", fingerprint(identity))
    try:
        roster = folder.roster()
    except FolderError as error:
        yield Finding("roster", "wrong", str(error), "run `feddc hospital join ROSTER`")
        return
    if roster is None:
        yield Finding("roster", "wrong", "no roster is pinned", "run `feddc hospital join ROSTER`")
    elif problem := why_not_member(roster, name, identity):
        remedy = "run `feddc hospital join` with a roster that lists this hospital"
        yield Finding("roster", "wrong", problem, remedy)
    else:
        yield Finding(
            "roster",
            "fine",
            f"study {roster.study}, generation {roster.generation}, {len(roster.members)} members, "
            f"{roster.fingerprint}",
        )
        yield from _codebook(folder, roster)


def _codebook(folder: HospitalFolder, roster: Roster) -> Iterator[Finding]:
    try:
        codebook = folder.codebook(roster)
    except FolderError as error:
        yield Finding("codebook", "wrong", str(error), "run `feddc hospital join` again")
        return
    if codebook is None:
        yield Finding(
            "codebook",
            "warning",
            "none is pinned: examples are what hospital.toml says, and each hospital scales its "
            "numbers by itself",
            "ask the coordinator for the study's codebook, if there is one",
        )
    else:
        yield Finding("codebook", "fine", codebook.fingerprint)


def _network() -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield Finding(
            "user", "warning", "the agent would run as root", "run it as a user of its own"
        )
    interfaces = [path.name for path in sorted(_INTERFACES.glob("*")) if _is_up(path)]
    if interfaces:
        yield Finding(
            "network",
            "warning",
            f"this process has a network ({', '.join(interfaces)}), which an agent never needs",
            "run the agent without a network, in a container with `network_mode: none`",
        )
    else:
        yield Finding("network", "fine", "none")


def _is_up(interface: Path) -> bool:
    try:
        flags = int((interface / "flags").read_text(), 16)
    except (OSError, ValueError):
        return False
    return bool(flags & _UP) and not flags & _LOOPBACK
