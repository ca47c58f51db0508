"""The result of one check."""

from dataclasses import dataclass
from typing import Literal

from learning.data import Partition


@dataclass(frozen=True)
class Finding:
    """What a check found and how to fix it; the agent does not start with anything wrong."""

    subject: str
    verdict: Literal["fine", "warning", "wrong"]
    text: str
    remedy: str = ""
    partition: Partition | None = None
    """The data, if this is about data that could be read."""
