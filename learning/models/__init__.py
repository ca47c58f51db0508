"""Models by name: `build` makes one, `names` and `options_of` say what there is."""

from learning.models.interface import ModelError, Option
from learning.models.registry import build, names, options_of

__all__ = ["ModelError", "Option", "build", "names", "options_of"]
