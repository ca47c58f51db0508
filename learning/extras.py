"""How an extra of pyproject.toml is installed."""


def install(extra: str) -> str:
    """Return how to install an extra; no package index has this project."""
    return f"pip install '.[{extra}]' in a copy of the repository (or 'feddc-….whl[{extra}]')"
