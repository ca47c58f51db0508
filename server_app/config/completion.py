"""What the shell completes for `--set KEY=VALUE`: the keys, then the values of a choice."""

from typing import Literal, get_args, get_origin

from .run_config import Settings, declaration


def settings(incomplete: str) -> list[tuple[str, str]]:
    """Return what may follow `--set`, each with the setting's summary."""
    key, equals, _ = incomplete.partition("=")
    if not equals:
        return [(f"{name}=", str(declaration(name).description)) for name in Settings.defaults()]
    if key not in Settings.defaults():
        return []
    field = declaration(key)
    values: tuple[str, ...] = ()
    if get_origin(field.annotation) is Literal:
        values = get_args(field.annotation)
    elif field.annotation is bool:
        values = ("true", "false")
    return [(f"{key}={value}", str(field.description)) for value in values]
