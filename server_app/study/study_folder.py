"""A study's folder: who the coordinator is, where it is reached, who takes part, what was run."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from operation import files
from operation.config import Scalar, SettingsError, SettingsGroup
from protocol.address import Address
from protocol.keys import Identity, InvalidKey
from protocol.study.connection import Connection
from protocol.study.roster import Roster, RosterError, check_name

FOLDER_VARIABLE = "FEDDC_STUDY"  # tells the ServerApp, which the SuperLink starts, where it is
INTERNAL_HOST = "127.0.0.1"


class StudyError(Exception):
    """Something in the study's folder is missing or wrong; the message says what to do."""


class StudyFile(SettingsGroup):
    """study.toml."""

    name: str = Field(description="the study, as the roster calls it")
    address: str = Field(description="where hospitals reach the coordinator, HOST:PORT")
    listen: str = Field(description="where the proxy listens on this machine")
    internal_port: int = Field(
        28000,
        ge=1,
        le=65534,
        description="port of the SuperLink, on this machine only; long polling uses the next one",
    )

    @field_validator("name")
    @classmethod
    def _fits_a_roster(cls, name: str) -> str:
        return check_name(name)

    @field_validator("address", "listen")
    @classmethod
    def _is_an_address(cls, text: str, info: ValidationInfo) -> str:
        Address.parse(text)
        return text


@dataclass(frozen=True)
class Study:
    """A study that has been set up with `feddc coordinator init`."""

    folder: Path
    file: StudyFile

    @staticmethod
    def open(folder: Path) -> "Study":
        """Open a study's folder; StudyError says what is wrong with it."""
        folder = folder.expanduser().absolute()
        path = folder / "study.toml"
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
            return Study(folder, StudyFile.parse(values, source=str(path)))
        except FileNotFoundError as error:
            raise StudyError(
                f"{folder} is not a study's folder: give --study, or make one with "
                "`feddc coordinator init`"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise StudyError(f"{path}: not TOML: {error}") from error
        except OSError as error:
            raise StudyError(f"{path}: {error.strerror}; run this as its owner") from error
        except SettingsError as error:
            raise StudyError(str(error)) from error

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def address(self) -> Address:
        """Where hospitals reach the coordinator."""
        return Address.parse(self.file.address)

    @property
    def superlink_address(self) -> str:
        """Where this machine, and no other, reaches the SuperLink."""
        return f"{INTERNAL_HOST}:{self.file.internal_port}"

    @property
    def long_poll_address(self) -> Address:
        """Where the proxy and the ServerApp, on this machine, reach the long-poll gateway."""
        return Address(INTERNAL_HOST, self.file.internal_port + 1)

    @property
    def identity_file(self) -> Path:
        return self.folder / "identity.key"

    @property
    def members(self) -> Path:
        return self.folder / "members"

    @property
    def roster_file(self) -> Path:
        return self.folder / "roster"

    @property
    def for_hospitals(self) -> Path:
        """What is sent to the hospitals; nothing in it is secret."""
        return self.folder / "for-hospitals"

    @property
    def tls(self) -> Path:
        return self.folder / "tls"

    @property
    def authority(self) -> Path:
        """The certificate that hospitals know the coordinator by."""
        return self.tls / "ca.crt"

    @property
    def superlink(self) -> Path:
        return self.folder / "superlink"

    @property
    def flower_home(self) -> Path:
        return self.superlink / "home"

    @property
    def proxy(self) -> Path:
        return self.folder / "proxy"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def experiments(self) -> Path:
        return self.folder / "experiments"

    @property
    def settings_file(self) -> Path:
        return self.folder / "settings.toml"

    def identity(self) -> Identity:
        """Return the coordinator's private identity."""
        try:
            return Identity.from_bytes(self.identity_file.read_bytes())
        except FileNotFoundError as error:
            raise StudyError(
                f"{self.identity_file}: not there; restore it from your backup"
            ) from error
        except (OSError, InvalidKey) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StudyError(f"{self.identity_file}: {reason}") from error

    def roster(self) -> Roster:
        """Return the roster that was last written."""
        try:
            roster = Roster.from_signed(self.roster_file.read_bytes())
        except FileNotFoundError as error:
            raise StudyError(
                "there is no roster yet: enrol the hospitals, then `feddc coordinator roster`"
            ) from error
        except (OSError, RosterError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StudyError(f"{self.roster_file}: {reason}") from error
        if roster.coordinator != self.identity().public:
            raise StudyError(f"{self.roster_file}: signed by another identity than identity.key")
        return roster

    def settings(self) -> dict[str, Scalar]:
        """Return the settings of the study's experiments, unchecked but for their form."""
        path = self.settings_file
        try:
            values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise StudyError(f"{path}: not TOML: {error}") from error
        except OSError as error:
            raise StudyError(f"{path}: {error.strerror}") from error
        for key, value in values.items():
            if not isinstance(value, bool | int | float | str):
                raise StudyError(f"{key} must be a single value ({path})")
        return values

    def connection(self) -> Connection:
        """Return what hospitals need to connect."""
        try:
            certificate = self.authority.read_text()
        except OSError as error:
            raise StudyError(
                f"{self.authority}: {error.strerror}; restore tls/ from your backup"
            ) from error
        return Connection.make(self.address, certificate, self.identity())

    def write_connection(self) -> Path:
        path = self.for_hospitals / "coordinator.json"
        files.make_folder(self.for_hospitals, 0o755)
        files.replace(path, self.connection().to_json().encode())
        return path
