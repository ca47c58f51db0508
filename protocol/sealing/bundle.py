"""Bundles: named byte strings in one payload, as set-up requests and replies carry them."""

from collections.abc import Mapping

_LARGEST = 2**31
# Enough for the largest roster; parsing millions of empty pieces would take half a minute.
_MOST_PIECES = 10_000


class BundleError(ValueError):
    """The bytes are not a valid bundle."""


def to_bundle(pieces: Mapping[str, bytes]) -> bytes:
    """Return name length, name, data length, data for each piece, sorted by name."""
    parts = []
    for name in sorted(pieces):
        for data in (name.encode(), pieces[name]):
            parts += [len(data).to_bytes(4, "big"), data]
    return b"".join(parts)


def from_bundle(data: bytes) -> dict[str, bytes]:
    """Parse a bundle; raise BundleError for anything that `to_bundle` would not have written."""
    fields: list[bytes] = []
    position = 0
    while position < len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "big")
        if position + 4 > len(data) or end > len(data) or end > _LARGEST:
            raise BundleError("the bundle is truncated")
        if len(fields) == 2 * _MOST_PIECES:
            raise BundleError(f"a bundle has at most {_MOST_PIECES} pieces")
        fields.append(data[position + 4 : end])
        position = end
    try:
        names = [name.decode() for name in fields[::2]]
    except UnicodeDecodeError as error:
        raise BundleError("a name in the bundle is not UTF-8") from error
    if len(fields) % 2 or names != sorted(set(names)):
        raise BundleError("the bundle's names are not unique and sorted")
    return dict(zip(names, fields[1::2], strict=True))
