"""A hospital's folder: its configuration, identity, roster, store and transport files."""

from dataclasses import dataclass
from pathlib import Path

from operation import files
from protocol.codebook import Codebook, CodebookError
from protocol.sealing.keys import Identity, InvalidKey
from protocol.study.card import Card, CardError
from protocol.study.connection import Connection, ConnectionFileError
from protocol.study.roster import Roster, RosterError

IMAGE_FOLDER = "images"


class FolderError(Exception):
    """A file in the hospital's folder is missing or invalid; the message says what to do."""


@dataclass(frozen=True)
class HospitalFolder:
    """`state/` belongs to the agent alone; the courier uses `socket/` and `transport/`."""

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
    def codebook_file(self) -> Path:
        return self.state / "codebook"

    @property
    def held_out_file(self) -> Path:
        return self.state / "held-out.json"

    @property
    def store_file(self) -> Path:
        return self.state / "memory.sqlite"

    @property
    def decisions_file(self) -> Path:
        return self.state / "decisions.json"

    @property
    def privacy_ledger_file(self) -> Path:
        return self.state / "privacy-ledger.jsonl"

    @property
    def models(self) -> Path:
        """The final models of closed experiments, each with its evaluation."""
        return self.path / "models"

    @property
    def image_cache(self) -> Path:
        """Medical images as they are trained on, for the next start."""
        return self.state / IMAGE_FOLDER

    @property
    def transport(self) -> Path:
        """What only the SuperNode needs: its key and the coordinator's address."""
        return self.path / "transport"

    @property
    def transport_key_file(self) -> Path:
        return self.transport / "supernode.key"

    @property
    def connection_file(self) -> Path:
        return self.transport / "coordinator.json"

    def card_file(self, name: str) -> Path:
        """The file for the coordinator: this hospital's public keys, and what it announces."""
        return self.path / f"{name}.hospital.json"

    def card(self, name: str) -> Card | None:
        """Return the card that was written last, or None if there is none."""
        path = self.card_file(name)
        try:
            return Card.from_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, CardError) as error:
            raise FolderError(
                f"{path}: {_reason(error)}; restore it, or make a new one with `feddc hospital "
                "renew-transport-key`"
            ) from error

    def connection(self) -> Connection | None:
        """Return the coordinator's address and certificate, or None before `join` stored them."""
        try:
            return Connection.from_json(self.connection_file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ConnectionFileError) as error:
            raise FolderError(
                f"{self.connection_file}: {_reason(error)}; run `feddc hospital join` again with "
                "the coordinator.json that came with the roster"
            ) from error

    def save_connection(self, connection: Connection) -> None:
        """Replace the stored address and certificate of the coordinator."""
        self.transport.mkdir(mode=0o755, exist_ok=True)
        files.replace(self.connection_file, connection.to_json().encode())

    def identity(self) -> Identity:
        try:
            return Identity.from_bytes(self.identity_file.read_bytes())
        except FileNotFoundError as error:
            raise FolderError(
                f"{self.identity_file}: no identity; create one with `feddc hospital init`"
            ) from error
        except (OSError, InvalidKey) as error:
            raise FolderError(f"{self.identity_file}: {_reason(error)}") from error

    def roster(self) -> Roster | None:
        """Return the pinned roster, or None before the first `join`."""
        try:
            return Roster.from_signed(self.roster_file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, RosterError) as error:
            raise FolderError(
                f"{self.roster_file}: {_reason(error)}; remove it and run `feddc hospital join`"
            ) from error

    def codebook(self, roster: Roster) -> Codebook | None:
        """Return the pinned codebook, which the roster's coordinator signed, or None."""
        try:
            return Codebook.from_signed(self.codebook_file.read_bytes(), roster.coordinator)
        except FileNotFoundError:
            return None
        except (OSError, CodebookError) as error:
            raise FolderError(
                f"{self.codebook_file}: {_reason(error)}; nothing is trained with it: remove it "
                "and run `feddc hospital join` with the codebook that came with the roster"
            ) from error

    def pin_codebook(self, signed: bytes) -> None:
        """Replace the pinned codebook by another signed one, atomically."""
        files.replace(self.codebook_file, signed, mode=0o600)

    def pin(self, signed: bytes) -> None:
        """Replace the pinned roster by another signed one, atomically."""
        files.replace(self.roster_file, signed, mode=0o600)


def _reason(error: Exception) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)
