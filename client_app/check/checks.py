"""Would this hospital be ready? Everything that has to be in place, and what to do if it is not."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from client_app.agent.permissions import Finding, group_number, guard_socket_folder, guard_state
from client_app.configuration import Configuration
from client_app.connect.agent_client import AgentUnreachable, health
from client_app.enrol.enrolment import place_on
from client_app.hospital_folder import FolderError, HospitalFolder
from client_app.state.sqlite_store import SqliteStore
from client_app.state.store import STOPPED
from learning.data import DataError
from learning.local_data import load_own
from operation.config import SettingsError
from protocol.study.roster import fingerprint

from .reachability import why_unreachable

_INTERFACES = Path("/sys/class/net")
_UP, _LOOPBACK = 0x1, 0x8


def examine(folder: HospitalFolder) -> Iterator[Finding]:
    """Check everything: configuration, keys, permissions, roster, data, socket, network."""
    try:
        configuration = Configuration.read(folder.configuration)
    except SettingsError as error:
        yield Finding("configuration", "wrong", str(error), "correct the file")
        return
    yield from essentials(folder, configuration)
    yield from _memory(folder)
    yield from _data(configuration)
    yield from _agent(configuration)
    yield from _coordinator(folder)


def essentials(folder: HospitalFolder, configuration: Configuration) -> Iterator[Finding]:
    """Check what an agent must be sure of before it starts; data it finds out by loading them."""
    yield from _configuration(configuration)
    yield from guard_state(folder.state)
    yield from _roster(folder, configuration)
    try:
        group = group_number(configuration.agent.group)
    except ValueError as error:
        yield Finding("socket", "wrong", str(error), "make it: groupadd, then usermod -aG")
    else:
        yield from guard_socket_folder(configuration.socket, group)
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
        yield Finding("identity", "wrong", str(error), "restore it, or make a new one with `init`")
        return
    yield Finding("identity", "fine", fingerprint(identity))
    try:
        roster = folder.roster()
    except FolderError as error:
        yield Finding("roster", "wrong", str(error), "`feddc hospital join ROSTER`")
        return
    if roster is None:
        yield Finding("roster", "wrong", "none is pinned", "`feddc hospital join ROSTER`")
    elif problem := place_on(roster, name, identity):
        yield Finding("roster", "wrong", problem, "`feddc hospital join` a roster that has it")
    else:
        yield Finding(
            "roster",
            "fine",
            f"study {roster.study}, generation {roster.generation}, {len(roster.members)} members, "
            f"{roster.fingerprint}",
        )


def _memory(folder: HospitalFolder) -> Iterator[Finding]:
    if not folder.store_file.exists():
        return
    store = SqliteStore.for_reading(folder.store_file)
    stopped = store.get(STOPPED) is not None
    store.close()
    if stopped:
        yield Finding(
            "memory",
            "wrong",
            "older than what the coordinator has seen: it was restored from an old backup",
            "`feddc hospital forget` ends all experiments here, and lets the agent serve again",
        )
    else:
        yield Finding("memory", "fine", "in order")


def _data(configuration: Configuration) -> Iterator[Finding]:
    data, policy = configuration.data, configuration.policy
    try:
        share = load_own(
            configuration.local,
            configuration.hospital.name,
            classes=tuple(data.classes),
            standardise=data.standardise,
        )
    except DataError as error:
        yield Finding("data", "wrong", str(error), "correct [data] in hospital.toml")
        return
    examples = f"{len(share.train)} examples to train on, {len(share.held_out)} held out"
    if len(share.train) < policy.minimum_local_items:
        yield Finding(
            "data",
            "wrong",
            f"{examples}; [policy] wants at least {policy.minimum_local_items}",
            "add data, or lower minimum-local-items",
        )
    elif len(share.held_out) < policy.minimum_held_out:
        yield Finding(
            "data",
            "warning",
            f"{examples}; [policy] evaluates on {policy.minimum_held_out} or more",
            "add data, or raise test-share",
        )
    else:
        yield Finding("data", "fine", examples)
    place = Path(configuration.local.data_dir)
    if data.data_dir and _is_open_to_all(place):
        yield Finding(
            "data",
            "warning",
            f"{place} can be read by every user of this machine, the courier's too",
            f"chmod o-rwx {quote(str(place))}",
        )


def _is_open_to_all(place: Path) -> bool:
    if not place.exists():
        return False  # a data set that needs no files
    wanted = stat.S_IROTH | (stat.S_IXOTH if place.is_dir() else 0)
    open_itself = place.stat().st_mode & wanted == wanted
    return open_itself and all(parent.stat().st_mode & stat.S_IXOTH for parent in place.parents)


def _agent(configuration: Configuration) -> Iterator[Finding]:
    try:
        told = health(str(configuration.socket))
    except AgentUnreachable:
        text = "no agent is running; start it with `feddc hospital serve`"
        yield Finding("agent", "fine", text)
    else:
        yield Finding("agent", "fine", f"{told['name']} answers (version {told['version']})")


def _coordinator(folder: HospitalFolder) -> Iterator[Finding]:
    try:
        connection = folder.connection()
    except FolderError as error:
        yield Finding("coordinator", "warning", str(error), "`feddc hospital join ROSTER`")
        return
    if connection is None:
        text = "no file says where it is"
        remedy = "`feddc hospital join` with the coordinator.json that came with the roster"
        yield Finding("coordinator", "warning", text, remedy)
    elif problem := why_unreachable(connection):
        # A warning only: where the agent runs there should be no network at all.
        remedy = "check this where `feddc hospital connect` runs; the firewall, HTTPS_PROXY"
        yield Finding("coordinator", "warning", f"{connection.address}: {problem}", remedy)
    else:
        yield Finding("coordinator", "fine", f"{connection.address} answers, and is the right one")


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
            "run it without one, as `network_mode: none` does in a container",
        )
    else:
        yield Finding("network", "fine", "none")


def _is_up(interface: Path) -> bool:
    try:
        flags = int((interface / "flags").read_text(), 16)
    except (OSError, ValueError):
        return False
    return bool(flags & _UP) and not flags & _LOOPBACK
