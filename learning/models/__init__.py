"""Models by name: `build` creates one, `names` and `options_of` list what is available."""

from learning.models.interface import ModelError, Option
from learning.models.registry import build, count_parameters, names, options_of

__all__ = ["ModelError", "Option", "build", "count_parameters", "names", "options_of"]
