"""`feddc hospital init`: an identity, its card, and who may read what."""

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_private_key

from client_app.configuration import Configuration
from protocol.sealing.keys import Identity
from protocol.study.card import Card
from protocol.study.roster import fingerprint
from tests.client_app.commands import feddc


def test_init_makes_a_private_identity_and_a_card_to_send(tmp_path: Path) -> None:
    folder = tmp_path / "st-mary"

    done = feddc("init", "--name", "St Mary", "--folder", folder)

    assert done.exit_code == 0
    key = folder / "state" / "identity.key"
    public = Identity.from_bytes(key.read_bytes()).public
    card = Card.from_json((folder / "St Mary.hospital.json").read_bytes())
    assert (card.name, card.identity) == ("St Mary", public)
    transport = (folder / "transport" / "supernode.key").read_bytes()
    assert load_ssh_private_key(transport, None).public_key() == load_pem_public_key(
        card.transport_pem
    )
    assert f"\n    {fingerprint(public)}\n" in done.stdout
    assert str(folder / "St Mary.hospital.json") in done.stdout
    assert key.read_bytes().hex() not in done.stdout
    assert "{" not in done.stdout  # the card is in its file
    assert _modes(folder) == {
        ".": 0o711,
        "St Mary.hospital.json": 0o644,
        "hospital.toml": 0o600,
        "socket": 0o750,
        "state": 0o700,
        "state/identity.key": 0o600,
        "transport": 0o755,
        "transport/supernode.key": 0o600,
    }


def test_init_gives_the_couriers_group_its_socket_and_its_key_and_nothing_else(
    tmp_path: Path,
) -> None:
    group = os.getgid()

    done = feddc("init", "--name", "St Mary", "--folder", tmp_path, "--group", group)

    assert done.exit_code == 0
    modes = _modes(tmp_path)
    assert {name for name, mode in modes.items() if mode & 0o070 and not mode & 0o007} == {
        "socket",
        "transport/supernode.key",
    }
    assert modes["transport/supernode.key"] == 0o640
    assert (tmp_path / "socket").stat().st_gid == group
    assert Configuration.read(tmp_path / "hospital.toml").agent.group == str(group)
    renewed = feddc("renew-transport-key", "--folder", tmp_path)
    assert renewed.exit_code == 0
    assert _modes(tmp_path) == modes


def test_init_refuses_a_group_that_is_not_there(tmp_path: Path) -> None:
    done = feddc("init", "--name", "St Mary", "--folder", tmp_path / "new", "--group", "nobodys")

    assert done.exit_code == 1
    assert "nobodys" in done.output
    assert not (tmp_path / "new").exists()


KEPT = ("state/identity.key", "hospital.toml", "transport/supernode.key")


@pytest.mark.parametrize("kept", KEPT)
def test_init_never_overwrites(kept: str, tmp_path: Path) -> None:
    feddc("init", "--name", "St Mary", "--folder", tmp_path)
    for file in set(KEPT) - {kept}:
        (tmp_path / file).unlink()
    before = (tmp_path / kept).read_bytes()

    done = feddc("init", "--name", "St Mary", "--folder", tmp_path)

    assert done.exit_code == 1
    assert f"{tmp_path / kept} already exists and is never overwritten" in done.stderr
    assert (tmp_path / kept).read_bytes() == before


def test_init_refuses_a_name_that_no_roster_could_have(tmp_path: Path) -> None:
    done = feddc("init", "--name", "St Mary\n", "--folder", tmp_path / "x")

    assert done.exit_code == 2
    assert "name must be" in done.stderr
    assert not (tmp_path / "x").exists()


def _modes(folder: Path) -> dict[str, int]:
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in paths}
