"""A hospital's folder: where its configuration, identity, roster, memory and socket are."""

from dataclasses import dataclass
from pathlib import Path

from operation import files
from protocol.keys import Identity, InvalidKey
from protocol.study.connection import Connection, ConnectionFileError
from protocol.study.roster import Roster, RosterError


class FolderError(Exception):
    """Something in the hospital's folder is missing or wrong; the message says what to do."""


@dataclass(frozen=True)
class HospitalFolder:
    """`state/` and what is in it are the agent's alone; the courier has `socket/`, `transport/`."""

    path: Path

    @property
    def configuration(self) -> Path:
        return self.path / "hospital.toml"

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def identity_file(self) -> Path:
        return self.state / "identity.key"

    @property
    def roster_file(self) -> Path:
        return self.state / "roster"

    @property
    def store_file(self) -> Path:
        return self.state / "memory.sqlite"

    @property
    def transport(self) -> Path:
        """What the SuperNode needs, and the agent does not: its key, where the coordinator is."""
        return self.path / "transport"

    @property
    def transport_key_file(self) -> Path:
        return self.transport / "supernode.key"

    @property
    def connection_file(self) -> Path:
        return self.transport / "coordinator.json"

    def connection(self) -> Connection | None:
        """Return how to reach the coordinator, or nothing before a `join` that said so."""
        try:
            return Connection.from_json(self.connection_file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ConnectionFileError) as error:
            raise FolderError(
                f"{self.connection_file}: {_reason(error)}; `join` with the coordinator's again"
            ) from error

    def keep_connection(self, connection: Connection) -> None:
        """Put a new way to the coordinator in place of the known one."""
        self.transport.mkdir(mode=0o755, exist_ok=True)
        files.replace(self.connection_file, connection.to_json().encode())

    def identity(self) -> Identity:
        try:
            return Identity.from_bytes(self.identity_file.read_bytes())
        except FileNotFoundError as error:
            raise FolderError(
                f"{self.identity_file}: no identity; make one with `feddc hospital init`"
            ) from error
        except (OSError, InvalidKey) as error:
            raise FolderError(f"{self.identity_file}: {_reason(error)}") from error

    def roster(self) -> Roster | None:
        """Return the pinned roster, or nothing before the first `join`."""
        try:
            return Roster.from_signed(self.roster_file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, RosterError) as error:
            raise FolderError(
                f"{self.roster_file}: {_reason(error)}; remove it and `join` again"
            ) from error

    def pin(self, signed: bytes) -> None:
        """Put a signed roster in place of the pinned one, wholly or not at all."""
        files.replace(self.roster_file, signed, mode=0o600)


def _reason(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)
