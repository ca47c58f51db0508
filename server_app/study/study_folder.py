"""A study's folder: the coordinator's identity, its address, the members and the experiments."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from operation import files
from operation.config import Scalar, SettingsError
from protocol.address import Address
from protocol.codebook import Codebook, CodebookError
from protocol.sealing.keys import Identity, InvalidKey
from protocol.study.connection import Connection
from protocol.study.roster import Roster, RosterError
from server_app.config.task_settings import located

from .study_file import StudyFile

FOLDER_VARIABLE = "FEDDC_STUDY"  # the study's folder, for the ServerApp that the SuperLink starts
INTERNAL_HOST = "127.0.0.1"


class StudyError(Exception):
    """A file in the study's folder is missing or wrong; the message says what to do."""


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
                f"{folder} is not a study's folder: give --study, or create one with "
                "`feddc coordinator init`"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise StudyError(f"{path}: not TOML: {error}") from error
        except OSError as error:
            raise StudyError(f"{path}: {error.strerror}; run this command as its owner") from error
        except SettingsError as error:
            raise StudyError(str(error)) from error

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def address(self) -> Address:
        """The address at which hospitals reach the coordinator."""
        return Address.parse(self.file.address)

    @property
    def superlink_address(self) -> str:
        """The SuperLink's address, reachable from this machine only."""
        return f"{INTERNAL_HOST}:{self.file.internal_port}"

    @property
    def long_poll_address(self) -> Address:
        """The long-poll gateway's address, for the proxy and the ServerApp on this machine."""
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
    def codebook_file(self) -> Path:
        """What an example is, as the study's people write it."""
        return self.folder / "codebook.toml"

    @property
    def signed_codebook_file(self) -> Path:
        """The codebook as it was signed, which hospitals pin."""
        return self.for_hospitals / "codebook"

    @property
    def for_hospitals(self) -> Path:
        """The files to send to every hospital; none is secret."""
        return self.folder / "for-hospitals"

    @property
    def tls(self) -> Path:
        return self.folder / "tls"

    @property
    def authority(self) -> Path:
        """The certificate of the authority, which hospitals pin."""
        return self.tls / "ca.crt"

    @property
    def superlink(self) -> Path:
        return self.folder / "superlink"

    @property
    def superlink_secret(self) -> Path:
        """The file with the secret of the running SuperLink; every start makes a new one."""
        return self.superlink / "secret"

    @property
    def flower_home(self) -> Path:
        return self.superlink / "home"

    @property
    def database(self) -> Path:
        """The SuperLink's database, through which all messages pass."""
        return self.superlink / "state.db"

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
                f"{self.identity_file} is missing; restore it from your backup"
            ) from error
        except (OSError, InvalidKey) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StudyError(f"{self.identity_file}: {reason}") from error

    def roster(self) -> Roster:
        """Return the last signed roster."""
        try:
            roster = Roster.from_signed(self.roster_file.read_bytes())
        except FileNotFoundError as error:
            raise StudyError(
                "there is no roster yet: enrol the hospitals, then run `feddc coordinator roster`"
            ) from error
        except (OSError, RosterError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StudyError(f"{self.roster_file}: {reason}") from error
        if roster.coordinator != self.identity().public:
            raise StudyError(f"{self.roster_file}: not signed by the identity in identity.key")
        return roster

    def written_codebook(self) -> Codebook | None:
        """Return the codebook in codebook.toml, signed or not; None if there is none."""
        try:
            return Codebook.from_toml(self.codebook_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, CodebookError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StudyError(f"{self.codebook_file}: {reason}") from error

    def codebook(self) -> Codebook | None:
        """Return the signed codebook; StudyError if codebook.toml was edited since."""
        written = self.written_codebook()
        try:
            data = self.signed_codebook_file.read_bytes()
            signed = Codebook.from_signed(data, self.identity().public)
        except FileNotFoundError:
            signed = None
        except (OSError, CodebookError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StudyError(
                f"{self.signed_codebook_file}: {reason}; sign codebook.toml again with "
                "`feddc coordinator codebook`"
            ) from error
        if written != signed:
            what = "was edited after it was signed" if written and signed else "is not signed yet"
            if written is None:
                what = "is missing, but a codebook was signed: restore it"
            raise StudyError(
                f"{self.codebook_file} {what}: sign it with `feddc coordinator codebook`, send "
                f"{self.for_hospitals} to every hospital, and have each join with it"
            )
        return signed

    def sign_codebook(self) -> Codebook | None:
        """Sign codebook.toml for the hospitals, if there is one."""
        written = self.written_codebook()
        if written is not None:
            files.make_folder(self.for_hospitals, 0o755)
            files.replace(self.signed_codebook_file, written.signed(self.identity()))
        return written

    def settings(self) -> dict[str, Scalar]:
        """Return the values in settings.toml; only their form is checked."""
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
        return located(values, self.folder)

    def connection(self) -> Connection:
        """Return the signed address and certificate that hospitals need to connect."""
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
