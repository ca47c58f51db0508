"""Enrol in a study: create the hospital's identity, then check the roster that lists it."""

import os
from datetime import UTC, datetime
from pathlib import Path

from client_app.configuration import AgentSection, Configuration, HospitalSection, template
from client_app.hospital.agreement.policy import Policy
from client_app.hospital_folder import FolderError, HospitalFolder
from client_app.unix_groups import group_number
from operation import files
from protocol.codebook import Codebook, CodebookError
from protocol.sealing.keys import Identity
from protocol.study.announced_policy import AnnouncedPolicy
from protocol.study.card import Card
from protocol.study.connection import Connection, ConnectionFileError
from protocol.study.roster import Roster, RosterError, fingerprint

from .transport_key import new_transport_key


class EnrolmentRefused(Exception):
    """A step of the enrolment was refused; the message says why and what to do."""


def initialise(folder: HospitalFolder, name: str, study: str, group: str = "") -> tuple[Card, Path]:
    """Create the folder with a new identity and a configuration; return the card and its file."""
    name = HospitalSection.parse({"name": name, "study": study}, source="command line").name
    try:
        number = group_number(group) if group else None
    except ValueError as error:
        raise EnrolmentRefused(f"{error}: create it with groupadd") from error
    for path in (folder.identity_file, folder.configuration, folder.transport_key_file):
        if path.exists():
            raise EnrolmentRefused(
                f"{path} already exists and is never overwritten: choose another --folder, or move "
                "it away if this hospital is not part of a study yet"
            )
    _make_folder(folder.path, 0o711)  # the courier needs to reach the socket
    _make_folder(folder.state, 0o700)
    _make_folder(folder.path / Path(AgentSection().socket).parent, 0o750, number)
    _make_folder(folder.transport, 0o755)  # only the key in it is secret
    identity = Identity.generate()
    # The file that is written next has a policy of defaults.
    card, card_file = _with_new_key(folder, name, identity, Policy(), number)
    files.write_new(folder.configuration, template(name, study, group).encode())
    files.write_new(folder.identity_file, identity.to_bytes())
    files.sync_folder(folder.state)
    files.sync_folder(folder.path)
    return card, card_file


def renew_transport_key(folder: HospitalFolder, configuration: Configuration) -> tuple[Card, Path]:
    """Replace the transport key; return the new card and its file."""
    name, group = configuration.hospital.name, configuration.agent.group
    identity = folder.identity()
    folder.transport_key_file.unlink(missing_ok=True)
    number = group_number(group) if group else None
    return _with_new_key(folder, name, identity, configuration.policy, number)


def renew_card(folder: HospitalFolder, configuration: Configuration) -> tuple[Card, Path]:
    """Write the card again, with the policy as it is now; return it and its file."""
    identity = folder.identity()
    present = folder.card(configuration.hospital.name)
    if present is None or present.identity != identity.public:
        raise FolderError(
            f"{folder.card_file(configuration.hospital.name)} is missing or another hospital's: "
            "restore it, or make a new one with `feddc hospital renew-transport-key`"
        )
    announced = _announced(configuration.policy)
    card = Card.make(present.name, identity, present.transport, announced)
    return card, _write_card(folder, card)


def _with_new_key(
    folder: HospitalFolder, name: str, identity: Identity, policy: Policy, group: int | None
) -> tuple[Card, Path]:
    private, public = new_transport_key()
    card = Card.make(name, identity, public, _announced(policy))
    card_file = _write_card(folder, card)
    files.write_new(folder.transport_key_file, private)
    if group is not None:  # the courier's user reads it
        _set_group(group, folder.transport_key_file, 0o640)
    files.sync_folder(folder.transport)
    return card, card_file


def _write_card(folder: HospitalFolder, card: Card) -> Path:
    path = folder.card_file(card.name)
    files.replace(path, card.to_json().encode())
    return path


def _announced(policy: Policy) -> AnnouncedPolicy:
    try:
        return policy.announced(datetime.now(UTC).date())
    except ValueError as error:
        raise EnrolmentRefused(
            "models in [policy] can't be announced: at most 64 names of letters, digits and . _ : "
            "/ -, each of at most 64 characters"
        ) from error


def read_connection(path: Path, roster: Roster) -> Connection:
    """Read the coordinator's address and certificate, signed by the roster's coordinator."""
    try:
        connection = Connection.from_json(path.read_bytes())
    except OSError as error:
        raise EnrolmentRefused(f"{path}: {error.strerror}") from error
    except ConnectionFileError as error:
        raise EnrolmentRefused(
            f"{path}: {error}; ask the coordinator for the file again"
        ) from error
    if not connection.is_signed_by(roster.coordinator):
        raise EnrolmentRefused(
            f"{path}: not signed by the coordinator on the roster, "
            f"{fingerprint(roster.coordinator)}; ask the coordinator for the file again"
        )
    return connection


def read_roster(path: Path) -> tuple[Roster, bytes]:
    """Read a roster file and check its signature."""
    try:
        data = path.read_bytes()
        return Roster.from_signed(data), data
    except OSError as error:
        raise EnrolmentRefused(f"{path}: {error.strerror}") from error
    except RosterError as error:
        raise EnrolmentRefused(
            f"{path}: {error}; ask the coordinator for the roster file again"
        ) from error


def read_codebook(path: Path, roster: Roster) -> tuple[Codebook, bytes]:
    """Read the study's codebook, signed by the roster's coordinator."""
    try:
        data = path.read_bytes()
        return Codebook.from_signed(data, roster.coordinator), data
    except OSError as error:
        raise EnrolmentRefused(f"{path}: {error.strerror}") from error
    except CodebookError as error:
        raise EnrolmentRefused(
            f"{path}: {error}; ask the coordinator for the codebook again"
        ) from error


def check_roster(
    roster: Roster, hospital: HospitalSection, identity: bytes, pinned: Roster | None
) -> None:
    """Refuse a roster without this hospital, or one that does not follow the pinned roster."""
    if problem := why_not_member(roster, hospital.name, identity):
        raise EnrolmentRefused(
            f"{problem}; send the coordinator your .hospital.json, and confirm your fingerprint "
            f"{fingerprint(identity)} over the telephone"
        )
    if hospital.study and roster.study != hospital.study:
        raise EnrolmentRefused(
            f"this is the roster of the study {roster.study}; hospital.toml names {hospital.study}"
        )
    if pinned is None:
        return
    if roster.coordinator != pinned.coordinator or roster.study != pinned.study:
        raise EnrolmentRefused(
            "another study or coordinator than the pinned roster's "
            f"(study {pinned.study}, coordinator {fingerprint(pinned.coordinator)}): the sender "
            "may be an impostor. If the study agreed on the change, start again with `init`"
        )
    if roster.generation <= pinned.generation and roster.digest != pinned.digest:
        raise EnrolmentRefused(
            f"its generation is {roster.generation}, the pinned roster's is {pinned.generation}: "
            "an old roster could bring back a member that has left. Ask for the latest roster"
        )


def why_not_member(roster: Roster, name: str, identity: bytes) -> str:
    """Return why the roster does not list this hospital with its identity, or "" if it does."""
    listed = roster.identity_of(name)
    if listed == identity:
        return ""
    if listed is not None:
        return f"the roster lists another identity for {name}, {fingerprint(listed)}"
    namesake = next((m.name for m in roster.members if m.identity == identity), None)
    if namesake is not None:
        return f"the roster calls this hospital {namesake}, hospital.toml calls it {name}"
    return f"{name} is not on the roster"


def _make_folder(path: Path, mode: int, group: int | None = None) -> None:
    try:
        files.make_folder(path, mode)
    except OSError as error:
        raise EnrolmentRefused(f"{path}: {error.strerror}") from error
    if group is not None:
        _set_group(group, path, mode)


def _set_group(group: int, path: Path, mode: int) -> None:
    try:
        os.chown(path, -1, group)
        path.chmod(mode)
    except OSError as error:
        raise EnrolmentRefused(
            f"{path}: can't set the group to {group}: {error.strerror}; add this user to the group"
        ) from error
