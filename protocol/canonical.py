"""One byte string for one content: canonical JSON, and parts with their lengths before them.

Canonical JSON has sorted keys, no white space, and ASCII only. Readers accept no other form.

Equal content always has equal bytes, so a second spelling of a request cannot pass for another.
"""

import json
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

_M = TypeVar("_M", bound=BaseModel)


def canonical_json(model: BaseModel) -> bytes:
    """Return the canonical form; equal models have equal bytes."""
    return canonical_bytes(model.model_dump(mode="json"))


def canonical_bytes(value: object, *, ensure_ascii: bool = True) -> bytes:
    """Return a value as JSON with sorted keys and no white space."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ensure_ascii)
    return text.encode()


def read_canonical(adapter: TypeAdapter[_M], data: bytes) -> _M:
    """Parse what `canonical_json` wrote; raise ValueError with the reason for anything else."""
    try:
        model = adapter.validate_json(data)
    except ValidationError as error:
        raise ValueError(first_problem(error)) from error
    if canonical_json(model) != data:
        raise ValueError("not in canonical form")
    return model


def prefixed(data: bytes) -> bytes:
    """Return `data` with its length before it, so that no part can run into the next."""
    return len(data).to_bytes(4, "big") + data


def first_problem(error: ValidationError, *, whole: str = "") -> str:
    """Return the first problem and its field (`whole`: the document), in printable ASCII.

    Names of unknown fields and tags are the sender's: they are spelled out and cut off.
    """
    return problems(error, whole=whole)[0]


def problems(error: ValidationError, *, whole: str = "", most: int = 10) -> list[str]:
    """Return the first problems, as `first_problem` does."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False)[:most]:
        where = _spelled(".".join(str(part) for part in problem["loc"]) or whole, 80)
        text = _spelled(problem["msg"].removeprefix("Value error, "), 300)
        lines.append(f"{where}: {text}" if where else text)
    return lines


def _spelled(text: str, length: int) -> str:
    ascii_text = text[:length].encode("unicode_escape").decode("ascii")
    return f"{ascii_text}..." if len(text) > length else ascii_text
