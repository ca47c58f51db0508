"""Detects a package of the user's own that hides one of this project's."""

from importlib.util import find_spec
from pathlib import Path

# General names, of which a Flower project may have one itself.
_PACKAGES = (
    "client_app", "lab", "learning", "operation", "protocol", "server_app", "strategies"
)  # fmt: skip
_FOLDER = Path(__file__).resolve().parents[1]  # site-packages, or a checkout


def check_packages() -> None:
    """Raise ImportError if Python finds another package or module instead of one beside this."""
    for package in _PACKAGES:
        expected = _FOLDER / package / "__init__.py"
        if not expected.is_file():
            continue  # an app bundle holds a selection
        spec = find_spec(package)
        found = spec.origin if spec else None
        if found is None or Path(found).resolve() != expected:
            raise ImportError(
                f"feddc needs its own package {package!r} ({expected.parent}), but Python finds "
                f"{found or 'none'}. Rename that one in your project, or start Python with -P and "
                f"PYTHONPATH={_FOLDER}, so that feddc's packages come first",
                name=package,
                path=found,
            )
