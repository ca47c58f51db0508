"""The codebook: what an example is, agreed once and pinned at every hospital."""

from .codebook import USUAL_MARKERS, Codebook, CodebookError
from .columns import (
    CategoryColumn,
    Column,
    NumberColumn,
    YesNoColumn,
    is_no,
    is_yes,
    level_key,
)
from .images import Images
from .parts import name_key
from .review_text import codebook_text

__all__ = [
    "USUAL_MARKERS",
    "CategoryColumn",
    "Codebook",
    "CodebookError",
    "Column",
    "Images",
    "NumberColumn",
    "YesNoColumn",
    "codebook_text",
    "is_no",
    "is_yes",
    "level_key",
    "name_key",
]
