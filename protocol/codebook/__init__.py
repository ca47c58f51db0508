"""The codebook: what an example is, agreed once and pinned at every hospital."""

from .codebook import Codebook, CodebookError
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

__all__ = [
    "CategoryColumn",
    "Codebook",
    "CodebookError",
    "Column",
    "Images",
    "NumberColumn",
    "YesNoColumn",
    "is_no",
    "is_yes",
    "level_key",
    "name_key",
]
