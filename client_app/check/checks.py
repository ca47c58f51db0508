"""Check whether this hospital is ready to take part in a study, and suggest fixes."""

import stat
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from client_app.configuration import Configuration
from client_app.connect.agent_client import AgentUnreachable, health
from client_app.hospital_data import load_partition
from client_app.hospital_folder import FolderError, HospitalFolder
from client_app.state.asked_experiments import asked_experiments
from client_app.state.held_out_file import HeldOutError
from client_app.state.sqlite_store import SqliteStore
from client_app.state.store import STOPPED
from learning.data import DataError
from operation import disk_space
from operation.config import SettingsError
from operation.terminal import byte_size
from protocol.codebook import Codebook

from .disclosure import check_announced, check_disclosure
from .essentials import check_essentials
from .finding import Finding
from .messages import check_messages
from .permissions import check_state_folder
from .reachability import WrongClock, expiry_warning, why_unreachable

_MOST_PROBLEMS = 20


def check_everything(folder: HospitalFolder) -> Iterator[Finding]:
    """Check configuration, keys, roster, network, disk, data, agent, approvals, connection."""
    try:
        configuration = Configuration.read(folder.configuration)
    except SettingsError as error:
        yield Finding("configuration", "wrong", str(error), "correct the file")
        yield from check_state_folder(folder.state)
        yield from _store(folder)
        yield from _disk(folder)
        yield from _coordinator(folder)
        yield from check_messages(folder)
        return
    yield from check_essentials(folder, configuration)
    yield from _store(folder)
    yield from _disk(folder)
    yield from check_disclosure(configuration.policy)
    yield from check_announced(folder, configuration)
    yield from _data(folder, configuration)
    yield from _agent(configuration)
    yield from _experiments(folder)
    yield from _coordinator(folder)
    yield from check_messages(folder)


def _store(folder: HospitalFolder) -> Iterator[Finding]:
    if not folder.store_file.exists():
        return
    store = SqliteStore.for_reading(folder.store_file)
    stopped, unreadable = store.get(STOPPED), store.unreadable()
    store.close()
    for experiment, reason in unreadable.items():
        yield Finding("store", "warning", f"experiment {experiment} is refused: {reason}")
    if stopped is not None:
        yield Finding(
            "store",
            "wrong",
            f"restored from an old backup ({stopped.decode(errors='replace')})",
            "`feddc hospital reset` ends all experiments here and lets the agent serve again",
        )
    else:
        yield Finding("store", "fine", "up to date")


def _disk(folder: HospitalFolder) -> Iterator[Finding]:
    if not folder.state.is_dir():
        return  # reported with the state folder
    free = disk_space.free_bytes(folder.state)
    text = f"{byte_size(free)} free at {folder.state}"
    verdict = disk_space.verdict(free)
    if verdict == "fine":
        yield Finding("disk", verdict, text)
    else:
        wanted = byte_size(disk_space.LOW_BYTES)
        remedy = f"free some space: with less than {wanted} the agent may have to refuse legs"
        yield Finding("disk", verdict, text, remedy)


def _data(folder: HospitalFolder, configuration: Configuration) -> Iterator[Finding]:
    data, policy = configuration.data, configuration.policy
    try:
        partition = load_partition(folder, configuration, _pinned_codebook(folder))
    except DataError as error:
        yield from _data_problems(error)
        return
    except HeldOutError as error:
        yield Finding("data", "wrong", str(error))
        return
    examples = f"{len(partition.train)} examples to train on, {len(partition.held_out)} held out"
    if len(partition.train) < policy.minimum_local_examples:
        yield Finding(
            "data",
            "wrong",
            f"{examples}; [policy] requires at least {policy.minimum_local_examples}",
            "add data, or lower minimum-local-examples",
            partition,
        )
    elif len(partition.held_out) < policy.minimum_held_out:
        yield Finding(
            "data",
            "warning",
            f"{examples}; [policy] evaluates on {policy.minimum_held_out} or more",
            "add data, or raise test-fraction",
            partition,
        )
    else:
        yield Finding("data", "fine", examples, partition=partition)
    path = Path(configuration.local.data_dir)
    if data.data_dir and _is_open_to_all(path):
        yield Finding(
            "data",
            "warning",
            f"{path} can be read by every user of this machine, the courier's too",
            f"chmod o-rwx {quote(str(path))}",
        )


def _pinned_codebook(folder: HospitalFolder) -> Codebook | None:
    try:
        roster = folder.roster()
        return None if roster is None else folder.codebook(roster)
    except FolderError:
        return None  # reported with the essentials


def _data_problems(error: DataError) -> Iterator[Finding]:
    """List all problems at once, up to a sensible number; the last one carries the remedy."""
    *texts, last = error.problems[:_MOST_PROBLEMS]
    if (more := len(error.problems) - _MOST_PROBLEMS) > 0:
        texts, last = [*texts, last], f"and {more} more"
    for text in texts:
        yield Finding("data", "wrong", text)
    yield Finding("data", "wrong", last, "correct the data, or [data] in hospital.toml")


def _is_open_to_all(path: Path) -> bool:
    if not path.exists():
        return False  # a data set that needs no files
    wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
    is_open = path.stat().st_mode & wanted == wanted
    return is_open and all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)


def _agent(configuration: Configuration) -> Iterator[Finding]:
    try:
        agent = health(str(configuration.socket))
    except AgentUnreachable:
        yield Finding("agent", "warning", "not running", "start it: `feddc hospital serve`")
    else:
        yield Finding("agent", "fine", f"{agent['name']} answers (version {agent['version']})")


def _experiments(folder: HospitalFolder) -> Iterator[Finding]:
    waiting = [one.experiment for one in asked_experiments(folder) if one.state == "waiting"]
    if waiting:
        yield Finding(
            "experiments",
            "warning",
            f"waiting for your approval: {', '.join(waiting)}",
            "review them with `feddc hospital experiments`, then `approve` or `reject` each",
        )


def _coordinator(folder: HospitalFolder) -> Iterator[Finding]:
    try:
        connection = folder.connection()
    except FolderError as error:
        yield Finding("coordinator", "warning", str(error), "run `feddc hospital join ROSTER`")
        return
    if connection is None:
        text = f"{folder.connection_file} is missing: the coordinator's address is not known"
        remedy = "run `feddc hospital join` with the coordinator.json that came with the roster"
        yield Finding("coordinator", "warning", text, remedy)
        return
    try:
        problem = why_unreachable(connection)
    except WrongClock as error:
        remedy = (
            "set the clock; if it is right, the coordinator runs `feddc coordinator "
            "renew-certificate`"
        )
        yield Finding("clock", "wrong", str(error), remedy)
        return
    if problem:
        # A warning only: the agent's machine or container should have no network at all.
        remedy = "check the firewall and HTTPS_PROXY where `feddc hospital connect` runs"
        yield Finding("coordinator", "warning", f"{connection.address}: {problem}", remedy)
    elif warning := expiry_warning(connection):
        remedy = "tell the coordinator to run `feddc coordinator renew-certificate`"
        yield Finding("coordinator", "warning", f"{connection.address}: {warning}", remedy)
    else:
        yield Finding("coordinator", "fine", f"{connection.address} answers, with its certificate")
