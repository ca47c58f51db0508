"""What the shell completes for `--set KEY=VALUE`: the keys, then the values that are known."""

from typing import Literal, get_args, get_origin

from learning.names import dataset_names, model_names

from .run_config import Settings, declaration


def settings(incomplete: str) -> list[tuple[str, str]]:
    """Return what may follow `--set`, each with the setting's summary."""
    key, equals, _ = incomplete.partition("=")
    if not equals:
        return [(f"{name}=", str(declaration(name).description)) for name in Settings.defaults()]
    if key not in Settings.defaults():
        return []
    return [(f"{key}={value}", str(declaration(key).description)) for value in values(key)]


def values(key: str) -> list[str]:
    """Return the known values of a setting; none where any number or text may be given."""
    if key == "model":
        return model_names()
    if key == "dataset":
        return dataset_names()
    kind = declaration(key).annotation
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return ["true", "false"] if kind is bool else []
