"""The members of a study: their cards, and the roster made of them."""

import unicodedata
from collections.abc import Iterable
from pathlib import Path

from operation import files
from protocol.study.announced_policy import AnnouncedPolicy, policy_text
from protocol.study.card import Card, CardError
from protocol.study.names import twin_key
from protocol.study.roster import DEFAULT_MINIMUM, Member, Roster, RosterError

from .study_folder import Study, StudyError

ROSTER_NAME = "roster"


class EnrolmentError(Exception):
    """A card or a member was refused; the message says why and what to do."""


def read_card(path: Path) -> Card:
    """Read the file that a hospital sent."""
    try:
        return Card.from_json(path.read_bytes())
    except OSError as error:
        raise EnrolmentError(f"{path}: {error.strerror}") from error
    except CardError as error:
        raise EnrolmentError(f"{path}: {error}; ask the hospital to send it again") from error


def enrolled(study: Study) -> list[Card]:
    """Return the members' cards, sorted by name."""
    cards = []
    for path in study.members.glob("*.json"):
        try:
            cards.append(Card.from_json(path.read_bytes()))
        except OSError as error:
            raise StudyError(f"{path}: {error.strerror}") from error
        except CardError as error:
            raise StudyError(
                f"{path}: {error}; run `feddc coordinator enrol` for this hospital again"
            ) from error
    return sorted(cards, key=lambda card: card.name)


def check_new(card: Card, members: Iterable[Card], coordinator: bytes) -> None:
    """Refuse a card that cannot be on one roster with the others."""
    if card.identity == coordinator:
        raise EnrolmentError("its identity is the coordinator's own")
    for member in members:
        if member.name == card.name:
            if member.identity != card.identity:
                raise EnrolmentError(
                    f"{card.name} is a member with another identity, {member.fingerprint}: if it "
                    f"lost its key, run `feddc coordinator remove {card.name!r}` first"
                )
        elif twin_key(member.name) == twin_key(card.name):
            raise EnrolmentError(
                f"its name, {card.name}, would be taken for that of the member {member.name}: they "
                "differ in capitals, spaces or punctuation only"
            )
        elif member.identity == card.identity:
            raise EnrolmentError(f"its identity is that of {member.name}")
        elif member.transport == card.transport:
            raise EnrolmentError(f"its transport key is that of {member.name}")


def is_newer(card: Card, known: Card) -> bool:
    """Return whether a member's card announces another policy than the last, and not an older."""
    if card.policy is None or card.policy == known.policy:
        return False
    return known.policy is None or card.policy.since >= known.policy.since


def announced_text(policy: AnnouncedPolicy | None) -> str:
    """Describe what a member has announced of its policy, and since when that is known."""
    if policy is None:
        return "has announced no policy"
    return f"announced on {policy.since}: {policy_text(policy)}"


def add(study: Study, card: Card) -> None:
    files.make_folder(study.members)
    files.replace(study.members / f"{card.name}.json", card.to_json().encode())


def remove(study: Study, name: str) -> None:
    name = unicodedata.normalize("NFC", name)  # a keyboard may send letter and accent apart
    if name not in {card.name for card in enrolled(study)}:
        names = ", ".join(card.name for card in enrolled(study)) or "none"
        raise EnrolmentError(f"{name} is not a member; the members are: {names}")
    (study.members / f"{name}.json").unlink()
    files.sync_folder(study.members)


def why_too_few(study: Study) -> str:
    """Return why hospitals may refuse the next roster; "" if it is signed or large enough."""
    count = len(enrolled(study))
    if not 2 <= count < DEFAULT_MINIMUM or is_roster_current(study):
        return ""
    return (
        f"This study has {count} members, and hospitals refuse experiments with fewer than "
        f"{DEFAULT_MINIMUM} unless they lower minimum-cohort in [policy] of hospital.toml. With "
        f"{count} members each knows whose model it receives. Enrol more with `feddc coordinator "
        "enrol`, or agree with the hospitals on a lower limit."
    )


def write_roster(study: Study) -> tuple[Roster, bool]:
    """Sign a roster of the present members; return it, and whether it opens a new generation."""
    identity = study.identity()
    members = [Member(card.name, card.identity) for card in enrolled(study)]
    if len(members) < 2:
        raise EnrolmentError(
            f"a study has at least 2 members, this one has {len(members)}: enrol more with "
            "`feddc coordinator enrol HOSPITAL-FILE`"
        )
    last = study.roster() if study.roster_file.exists() else None
    try:
        roster = Roster.make(study.name, last.generation if last else 1, identity.public, members)
        is_new = last is None or roster != last
        if last is not None and is_new:
            roster = Roster.make(study.name, last.generation + 1, identity.public, members)
    except RosterError as error:
        raise EnrolmentError(f"the members cannot be on one roster: {error}") from error
    signed = roster.signed(identity)
    if is_new:
        files.replace(study.roster_file, signed)
    files.make_folder(study.for_hospitals, 0o755)
    files.replace(study.for_hospitals / ROSTER_NAME, signed)
    return roster, is_new


def is_roster_current(study: Study) -> bool:
    """Return whether the last signed roster lists exactly the present members."""
    if not study.roster_file.exists():
        return False
    members = {(card.name, card.identity) for card in enrolled(study)}
    return {(member.name, member.identity) for member in study.roster().members} == members
