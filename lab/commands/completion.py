"""What the shell completes for the lab's commands; nothing here imports torch."""

from pathlib import Path

_EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def experiments(incomplete: str) -> list[str]:
    """Return the names of experiments and ablations."""
    found = (file.stem for kind in ("paper", "ablations") for file in _files(kind))
    return sorted(name for name in found if name.startswith(incomplete))


def _files(kind: str) -> list[Path]:
    return list((_EXPERIMENTS / kind).glob("*.toml"))
