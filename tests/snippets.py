"""The snippets of a page: its fenced blocks under their headings, and the commands in them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
README, FLOWER = ROOT / "README.md", ROOT / "docs" / "flower.md"
_PART = re.compile(r"^#+ ([^\n]*)$|^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """One fenced block."""

    heading: str
    language: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The words of each line that is a command, without comments."""
        lines = [shlex.split(line, comments=True) for line in self.text.splitlines()]
        return [words for words in lines if words]


def snippets(page: Path) -> list[Snippet]:
    found, heading = [], ""
    for title, language, text in _PART.findall(page.read_text(encoding="utf-8")):
        if title:
            heading = title
        else:
            found.append(Snippet(heading, language, text))
    return found


def under(page: Path, heading: str) -> list[Snippet]:
    """Return the snippets under a heading; fail if there are none."""
    found = [snippet for snippet in snippets(page) if snippet.heading == heading]
    assert found, f"{page.name} has no snippet under {heading!r}"
    return found
