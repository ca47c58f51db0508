"""Names of studies and members: what may be one, and which two would be taken for each other.

Names are read out over the telephone, printed in tables and written into audit lines, and they are
the names of files. What cannot be told apart by eye or ear must not be two members.
"""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator

_MOST_CHARACTERS = 64
_MOST_BYTES = 192  # in UTF-8: a file name of at most 255 bytes is made of it
_DIGITS = frozenset("0123456789")  # some digits of other scripts look like letters
_PUNCTUATION = frozenset(" ._-")
_FILLERS = frozenset("\u115f\u1160")  # letters that show nothing
_RULE = (
    f"must be 1 to {_MOST_CHARACTERS} letters, digits, spaces, dots, hyphens or underscores, the "
    "first a letter or digit"
)
# Words that tables, audit lines, logs and questions use for somebody or something else.
RESERVED = frozenset(
    """agent aggregate aggregation all coordinator courier everyone feddc flower forwarder hospital
    hospitals me member members nobody none proxy roster self server serverapp study superlink
    supernode unknown you""".split()  # noqa: SIM905 (as a list it would fill a page)
)
# Japanese writes with several scripts; every other name keeps to one.
_ONE_SCRIPT = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK"}
# Cyrillic and Greek letters whose capital looks like a Latin one, and the letter i without its dot.
_LATIN = str.maketrans("авеһіјкмнорсѕтухԁԛԝαβεζηικμνορτυχı", "abehijkmhopcstyxdqwabezhikmnoptyxi")


def check_name(name: str) -> str:
    """Return a name that was typed here in composed form (NFC); ValueError if it is not valid."""
    name = unicodedata.normalize("NFC", name)
    if problem := name_problem(name):
        raise ValueError(f"{problem}, got {name!r}")
    return name


def check_member_name(name: str) -> str:
    """Do the same for a member's name, which can't be a reserved word either."""
    name = check_name(name)
    if twin_key(name) in RESERVED:
        raise ValueError(f"is a word that audit lines and tables use for others, got {name!r}")
    return name


def name_problem(name: str) -> str:
    """Return why `name` can't be the name of a study or member, without quoting it; "" if it can.

    Letters of any script are allowed, but of one script only: `East` with a Cyrillic `а` is read
    as another name. Compatibility forms (full width, ligatures) and decomposed ones are not.
    """
    if not 1 <= len(name) <= _MOST_CHARACTERS:
        return _RULE
    letters = [sign for sign in name if sign not in _DIGITS and sign not in _PUNCTUATION]
    if name[0] in _PUNCTUATION or not all(map(_is_letter, letters)):
        return _RULE
    if unicodedata.normalize("NFKC", name) != name:
        return "must be in Unicode's composed form, without compatibility characters"
    if len(name.encode()) > _MOST_BYTES:
        return f"must have at most {_MOST_BYTES} bytes in UTF-8"
    if len(set(map(_script, letters))) > 1:
        return "must not mix letters of different scripts"
    return ""


def twin_key(name: str) -> str:
    """Return what is left of a name when it is read out: two names with one key are twins.

    That is NFKC, case folding, no punctuation and no spaces; letters of other scripts that look
    like Latin ones count as these.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(sign for sign in folded if sign.isalnum()).translate(_LATIN)


def _is_letter(sign: str) -> bool:
    return unicodedata.category(sign)[0] == "L" and sign not in _FILLERS


def _script(letter: str) -> str:
    script = unicodedata.name(letter, "UNKNOWN").split()[0]
    return _ONE_SCRIPT.get(script, script)


def _valid(name: str) -> str:
    # Not check_name: it quotes the name, and this one comes from outside.
    if problem := name_problem(name):
        raise ValueError(problem)
    return name


def _valid_member(name: str) -> str:
    if twin_key(_valid(name)) in RESERVED:
        raise ValueError("is a reserved word")
    return name


StudyName = Annotated[str, AfterValidator(_valid)]
MemberName = Annotated[str, AfterValidator(_valid_member)]
