"""Models by name: `build` creates one, `names` and `options_of` list what is available."""

from learning.models.interface import ModelError, Option
from learning.models.registry import build, names, options_of

__all__ = ["ModelError", "Option", "build", "names", "options_of"]
