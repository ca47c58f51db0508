"""Search every byte of a folder's files: databases, journals, key files, free pages."""

from collections.abc import Iterable
from pathlib import Path

PIECE = 16  # bytes of a secret that count as finding it
_MOST_PIECES = 16  # of a large secret; they are spread over all of it


def is_somewhere(secret: bytes, folder: Path) -> bool:
    """Return whether a piece of a secret is in any file below a folder."""
    return bool(found([secret], folder))


def found(secrets: Iterable[bytes], folder: Path) -> list[bytes]:
    """Return the secrets of which a piece is in any file below a folder."""
    contents = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        secret
        for secret in secrets
        if any(
            secret[start : start + PIECE] in content
            for content in contents
            for start in range(0, max(1, len(secret) - PIECE + 1), _step(len(secret)))
        )
    ]


def _step(length: int) -> int:
    return max(PIECE, length // _MOST_PIECES)
