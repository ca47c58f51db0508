"""hospital.toml: the hospital's name, data, policy and socket.

`feddc hospital init` generates the file and its comments from the classes below.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator
from pydantic.fields import FieldInfo

from client_app.hospital.agreement.policy import Policy
from learning.data.tables.local_columns import LocalColumn
from learning.settings import LocalSettings
from operation.config import SettingsError, SettingsGroup
from protocol.study.names import check_member_name

_MEBIBYTE = 1024 * 1024
# Linux allows 108 bytes, including the closing zero.
_LONGEST_SOCKET_PATH = 107


class HospitalSection(SettingsGroup):
    """Who this hospital is."""

    name: str = Field(description="name of this hospital on the roster")
    study: str = Field("", description="name of the study; `join` refuses others; empty: any study")

    @field_validator("name")
    @classmethod
    def _fits_a_roster(cls, name: str) -> str:
        return check_member_name(name)


class DataSection(LocalSettings):
    """What this hospital trains on, and on which device."""

    dataset: str = Field(
        "csv", description="csv, image-folder, medical-folder, or a data set's name"
    )
    data_dir: str = Field("data", description="folder or file of the data, relative to this file")
    test_fraction: float = Field(
        0.2, gt=0, lt=1, description="held out for evaluation, unless the data have a test set"
    )
    classes: list[str] = Field(
        default=[],
        description="csv, image-folder: the study's classes in order, if it has no codebook",
    )
    standardise: bool = Field(
        True, description="csv: scale to mean 0, deviation 1; false if the study agreed on a scale"
    )
    columns: dict[str, LocalColumn] = Field(
        default={}, description="this hospital's names, levels and units for the codebook's columns"
    )


class AgentSection(SettingsGroup):
    """Where the agent listens."""

    socket: str = Field(
        "socket/agent.sock",
        description="path relative to this file; its folder must hold nothing but the socket",
    )
    group: str = Field(
        "", description="group of the agent's and the courier's users only; empty: the agent's own"
    )
    maximum_request_bytes: int = Field(
        512 * _MEBIBYTE, ge=1024, description="longer requests are refused unread"
    )


# A real hospital's data are not partitioned, and its models are always sealed.
_SIMULATION_ONLY: Mapping[str, frozenset[str]] = {
    "data": frozenset(
        {
            "split",
            "examples",
            "held-out",
            "classes-per-hospital",
            "skew-small-fraction",
            "skew-min-examples",
            "codebook",
            "cache-dir",
        }
    ),
    "policy": frozenset({"any-model", "hand-on-diverged", "sealed"}),
}
_SECTIONS: Mapping[str, type[SettingsGroup]] = {
    "hospital": HospitalSection,
    "data": DataSection,
    "policy": Policy,
    "agent": AgentSection,
}


_COLUMNS_EXAMPLE = """
# With a codebook, write one such section for each column that has another name, unit or other
# words here. `factor`: local numbers times this are in the codebook's unit.
# [data.columns.creatinine]
# column = "Kreatinin"
# factor = 88.4
# levels = { "m" = "male", "w" = "female" }""".splitlines()


@dataclass(frozen=True)
class Configuration:
    """A validated hospital.toml."""

    path: Path
    hospital: HospitalSection
    data: DataSection
    policy: Policy
    agent: AgentSection

    @staticmethod
    def read(path: Path) -> "Configuration":
        """Read and validate the file; a SettingsError names the file, the section and the key."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path}: not TOML: {error}") from error
        except FileNotFoundError as error:
            raise SettingsError(
                f"{path}: no such file; create it with `feddc hospital init`"
            ) from error
        except OSError as error:
            raise SettingsError(
                f"{path}: {error.strerror}; run this as the file's owner"
            ) from error
        unknown = sorted(values.keys() - _SECTIONS.keys())
        if unknown:
            raise SettingsError(
                f"{unknown[0]} is not a section; the sections are {', '.join(_SECTIONS)} ({path})"
            )
        for name, section in values.items():
            if not isinstance(section, dict):
                raise SettingsError(f"{name} must be a section, [{name}] ({path})")
        sections: dict[str, Any] = {}
        problems = []
        for name in _SECTIONS:
            try:
                sections[name] = _section(name, values, path)
            except SettingsError as error:
                problems.append(str(error))
        if problems:
            raise SettingsError("; ".join(problems))
        configuration = Configuration(path, **sections)
        if len(bytes(configuration.socket)) > _LONGEST_SOCKET_PATH:
            raise SettingsError(
                f"socket must be at most {_LONGEST_SOCKET_PATH} bytes long as an absolute path, "
                f"got {configuration.socket} ({path}, [agent])"
            )
        return configuration

    @property
    def socket(self) -> Path:
        return (self.path.absolute().parent / self.agent.socket).expanduser()

    @property
    def local(self) -> LocalSettings:
        """The settings of the data, with an absolute path."""
        data_dir = (self.path.absolute().parent / Path(self.data.data_dir).expanduser()).resolve()
        return self.data.model_copy(
            update={"data_dir": str(data_dir)} if self.data.data_dir else {}
        )


def template(name: str, study: str = "", group: str = "") -> str:
    """Return a hospital.toml with every key, its description and its default."""
    given = {("hospital", "name"): name, ("hospital", "study"): study, ("agent", "group"): group}
    lines = ["# Check this file with `feddc hospital check`."]
    for section, model in _SECTIONS.items():
        lines += ["", f"[{section}]"]
        for key, field in _keys(section, model):
            value = given.get((section, key), field.get_default())
            # JSON writes strings, numbers, booleans and lists as TOML does.
            lines += [f"# {field.description}"] if field.description else []
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
        lines += _COLUMNS_EXAMPLE if section == "data" else []
    return "\n".join(lines) + "\n"


def _keys(section: str, model: type[SettingsGroup]) -> list[tuple[str, FieldInfo]]:
    skipped = _SIMULATION_ONLY.get(section, frozenset())
    pairs = ((str(field.alias), field) for field in model.model_fields.values())
    return [(key, field) for key, field in pairs if key not in skipped | {"columns"}]


def _section(name: str, values: Mapping[str, Any], path: Path) -> SettingsGroup:
    section = dict(values.get(name, {}))
    for key in section.keys() & _SIMULATION_ONLY.get(name, frozenset()):
        raise SettingsError(f"{key} is for simulated hospitals only ({path}, [{name}])")
    columns = section.get("columns", {}) if name == "data" else {}
    if isinstance(columns, dict) and columns:
        section["columns"] = {
            column: LocalColumn.parse(
                entry if isinstance(entry, dict) else {},
                source=f"{path}, [data.columns.{column}]",
            )
            for column, entry in columns.items()
        }
    return _SECTIONS[name].parse(section, source=f"{path}, [{name}]")
