"""hospital.toml: what a hospital is and trains on, what it allows, and where its agent listens.

The file that `feddc hospital init` writes is made from the models below, comments included.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator
from pydantic.fields import FieldInfo

from client_app.hospital.policy import Policy
from learning.settings import LocalSettings
from operation.config import SettingsError, SettingsGroup
from protocol.study.roster import check_name

_MEBIBYTE = 1024 * 1024
# Linux takes 108 bytes with the closing zero.
_LONGEST_SOCKET_PATH = 107


class HospitalSection(SettingsGroup):
    """Who this hospital is."""

    name: str = Field(description="as the roster spells it")
    study: str = Field("", description="the study; `join` takes no other's roster; empty: any")

    @field_validator("name")
    @classmethod
    def _fits_a_roster(cls, name: str) -> str:
        return check_name(name)


class DataSection(LocalSettings):
    """What this hospital trains on, and on what machine. All of it is the hospital's own."""

    dataset: str = Field("csv", description="csv, image-folder, or a data set by its name")
    data_dir: str = Field("data", description="its folder or file, seen from this file's folder")
    test_share: float = Field(
        0.2, gt=0, lt=1, description="held out, never trained on, unless the data have a test set"
    )
    classes: list[str] = Field(
        default=[],
        description="csv, image-folder: the study's classes in its order; empty: those found here",
    )
    standardise: bool = Field(
        True, description="csv: to mean 0, deviation 1; false where the study agreed on a scale"
    )


class AgentSection(SettingsGroup):
    """How the agent is reached."""

    socket: str = Field(
        "socket/agent.sock",
        description="seen from this file's folder; nothing else may be in the socket's folder",
    )
    group: str = Field(
        "", description="group of the agent's and the courier's user only; empty: the agent's own"
    )
    maximum_request_bytes: int = Field(
        512 * _MEBIBYTE, ge=1024, description="a longer request is not read"
    )


# A real hospital's data are not dealt out, and its models never travel readable.
_SIMULATION_ONLY: Mapping[str, frozenset[str]] = {
    "data": frozenset(
        {"split", "samples", "held-out", "classes-per-hospital", "smallest-share", "smallest"}
    ),
    "policy": frozenset({"any-model", "unsealed"}),
}
_SECTIONS: Mapping[str, type[SettingsGroup]] = {
    "hospital": HospitalSection,
    "data": DataSection,
    "policy": Policy,
    "agent": AgentSection,
}


@dataclass(frozen=True)
class Configuration:
    """A hospital.toml that has been checked."""

    path: Path
    hospital: HospitalSection
    data: DataSection
    policy: Policy
    agent: AgentSection

    @staticmethod
    def read(path: Path) -> "Configuration":
        """Read the file; SettingsError names the file, the section and the key."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path}: not TOML: {error}") from error
        except FileNotFoundError as error:
            raise SettingsError(f"{path}: not there; `feddc hospital init` makes one") from error
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror}; run this as its owner") from error
        unknown = sorted(values.keys() - _SECTIONS.keys())
        if unknown:
            raise SettingsError(
                f"{unknown[0]} is not a section; there are {', '.join(_SECTIONS)} ({path})"
            )
        for name, section in values.items():
            if not isinstance(section, dict):
                raise SettingsError(f"{name} must be a section, [{name}] ({path})")
        sections: dict[str, Any] = {name: _section(name, values, path) for name in _SECTIONS}
        configuration = Configuration(path, **sections)
        if len(bytes(configuration.socket)) > _LONGEST_SOCKET_PATH:
            raise SettingsError(
                f"socket must be at most {_LONGEST_SOCKET_PATH} bytes long as a whole path, got "
                f"{configuration.socket} ({path}, [agent])"
            )
        return configuration

    @property
    def socket(self) -> Path:
        return (self.path.absolute().parent / self.agent.socket).expanduser()

    @property
    def local(self) -> LocalSettings:
        """The data's settings with their place made absolute."""
        place = (self.path.absolute().parent / Path(self.data.data_dir).expanduser()).resolve()
        return self.data.model_copy(update={"data_dir": str(place)} if self.data.data_dir else {})


def template(name: str, study: str = "", group: str = "") -> str:
    """Return a hospital.toml with every key, its meaning and its default."""
    given = {("hospital", "name"): name, ("hospital", "study"): study, ("agent", "group"): group}
    lines = ["# `feddc hospital check` says whether everything is in place."]
    for section, model in _SECTIONS.items():
        lines += ["", f"[{section}]"]
        for key, field in _keys(section, model):
            value = given.get((section, key), field.get_default())
            # JSON's strings, numbers, booleans and lists of them are TOML's.
            lines += [f"# {field.description}"] if field.description else []
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _keys(section: str, model: type[SettingsGroup]) -> list[tuple[str, FieldInfo]]:
    skipped = _SIMULATION_ONLY.get(section, frozenset())
    pairs = ((str(field.alias), field) for field in model.model_fields.values())
    return [(key, field) for key, field in pairs if key not in skipped]


def _section(name: str, values: Mapping[str, Any], path: Path) -> SettingsGroup:
    section = values.get(name, {})
    for key in section.keys() & _SIMULATION_ONLY.get(name, frozenset()):
        raise SettingsError(f"{key} is for simulated hospitals only ({path}, [{name}])")
    return _SECTIONS[name].parse(section, source=f"{path}, [{name}]")
