"""Text from outside, made safe to print: nothing in it can steer a terminal or imitate a line.

Replies, cards, rosters and Flower's messages are written by others. Every way to a terminal or a
log passes through `printable`: `operation.terminal` and the formatters of `operation.log_lines`.
"""

import re

_LIMIT = 2_000
# Characters that show nothing, though Unicode counts them as letters or marks.
_INVISIBLE = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef"
)
_LOOK_INVISIBLE = re.compile(f"[{_INVISIBLE}]")


def printable(text: str, *, lines: bool = False, limit: int | None = _LIMIT) -> str:
    r"""Return `text` with everything unprintable spelled out, as in `\x1b` or `\u202e`.

    That is: control and format characters (escape sequences, bidirectional overrides, zero width),
    line and paragraph separators, unassigned and invisible characters, lone surrogates. `lines`
    keeps line breaks and tabs. What exceeds `limit` characters is counted instead of shown.
    """
    rest = 0 if limit is None else max(0, len(text) - limit)
    shown = text[:limit] if rest else text
    if not shown.isprintable() or _LOOK_INVISIBLE.search(shown):
        keep = "\n\t" if lines else ""
        shown = "".join(
            sign if sign in keep or _is_seen(sign) else _spelled(sign) for sign in shown
        )
    return f"{shown}… ({rest} more characters)" if rest else shown


def _is_seen(sign: str) -> bool:
    return sign.isprintable() and not _LOOK_INVISIBLE.match(sign)


def _spelled(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")
