"""One content has one form: JSON with sorted keys and no white space, and nothing else is read.

A second spelling of the same request would be a second request.
"""

import json
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

_M = TypeVar("_M", bound=BaseModel)


def canonical_json(model: BaseModel) -> bytes:
    """Return the only accepted form; equal models are equal bytes."""
    return canonical_bytes(model.model_dump(mode="json"))


def canonical_bytes(value: object, *, ensure_ascii: bool = True) -> bytes:
    """Return a value as JSON with sorted keys and no white space."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ensure_ascii)
    return text.encode()


def read_canonical(adapter: TypeAdapter[_M], data: bytes) -> _M:
    """Read what `canonical_json` wrote; anything else is a ValueError that says why."""
    try:
        model = adapter.validate_json(data)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise ValueError(f"{where}: {problem['msg']}" if where else problem["msg"]) from error
    if canonical_json(model) != data:
        raise ValueError("not in canonical form")
    return model
