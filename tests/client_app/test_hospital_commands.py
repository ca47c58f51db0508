"""`feddc hospital`: entering a study, being ready for it, and seeing what left."""

import hashlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_private_key
from typer.testing import CliRunner

from client_app.audit import AuditTrail
from client_app.configuration import Configuration
from client_app.sqlite_store import SqliteStore
from lab.cli import app
from protocol.card import Card
from protocol.keys import Identity
from protocol.roster import fingerprint

ROOT = Path(__file__).parents[2]
Enrolled = Any  # tests/client_app/conftest.py


def feddc(*arguments: object, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["hospital", *map(str, arguments)], input=answer)


# --- init -----------------------------------------------------------------------------------------


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
    assert f"{tmp_path / kept} is already there" in done.stderr
    assert (tmp_path / kept).read_bytes() == before


def test_init_refuses_a_name_that_no_roster_could_have(tmp_path: Path) -> None:
    done = feddc("init", "--name", "St Mary\n", "--folder", tmp_path / "x")

    assert done.exit_code == 2
    assert "name must be" in done.stderr
    assert not (tmp_path / "x").exists()


# --- join -----------------------------------------------------------------------------------------


@pytest.fixture
def newcomer(enrolled: Enrolled) -> Enrolled:
    """A hospital that has pinned nothing yet."""
    enrolled.folder.roster_file.unlink()
    return enrolled


def _offer(hospital: Enrolled, **changes: Any) -> Path:
    path: Path = hospital.folder.path.parent / "study.roster"
    path.write_bytes(hospital.roster(**changes).signed(hospital.coordinator))
    return path


def test_join_shows_everyone_asks_and_pins(newcomer: Enrolled) -> None:
    offered = _offer(newcomer, epoch=3)

    done = feddc("join", offered, "--folder", newcomer.folder.path, answer="y\n")

    assert done.exit_code == 0
    roster = newcomer.roster(epoch=3)
    shown = [line.rstrip() for line in done.stdout.splitlines()]
    assert shown[:3] == [
        "study        hearts",
        "epoch        3",
        f"coordinator  {fingerprint(newcomer.coordinator.public)}",
    ]
    for member in roster.members:
        you = "you" if member.name == "St Mary" else ""
        (line,) = (line for line in shown if line.startswith(f"{member.name} "))
        assert " ".join(line.split()) == f"{member.name} {member.fingerprint} {you}".strip()
    assert f"    {roster.fingerprint}" in shown
    assert newcomer.folder.roster_file.read_bytes() == offered.read_bytes()
    assert stat.S_IMODE(newcomer.folder.roster_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_join_pins_nothing_without_a_yes(answer: str, newcomer: Enrolled) -> None:
    done = feddc("join", _offer(newcomer), "--folder", newcomer.folder.path, answer=answer)

    assert done.exit_code != 0
    assert newcomer.folder.roster() is None


@pytest.mark.parametrize("spelling", [str, lambda text: text.replace(" ", ""), str.lower])
def test_a_script_says_yes_with_the_fingerprint(
    spelling: Callable[[str], str], newcomer: Enrolled
) -> None:
    agreed = spelling(newcomer.roster().fingerprint)

    done = feddc("join", _offer(newcomer), "--folder", newcomer.folder.path, "--yes", agreed)

    assert done.exit_code == 0
    assert newcomer.folder.roster() == newcomer.roster()


def test_a_script_that_expects_another_roster_pins_nothing(newcomer: Enrolled) -> None:
    agreed = newcomer.roster(epoch=2).fingerprint

    done = feddc("join", _offer(newcomer), "--folder", newcomer.folder.path, "--yes", agreed)

    assert done.exit_code == 1
    assert "nothing pinned" in done.stderr
    assert newcomer.folder.roster() is None


def test_a_changed_roster_is_not_even_shown(newcomer: Enrolled) -> None:
    offered = _offer(newcomer)
    other = Identity.generate().public.hex().encode()
    mercy = newcomer.others["Mercy"].public.hex().encode()
    offered.write_bytes(offered.read_bytes().replace(mercy, other))

    done = feddc("join", offered, "--folder", newcomer.folder.path, answer="y\n")

    assert done.exit_code == 1
    assert "not signed by the coordinator it names" in done.stderr
    assert "Mercy" not in done.stdout
    assert newcomer.folder.roster() is None


def test_a_roster_with_another_key_for_this_hospital_is_refused(newcomer: Enrolled) -> None:
    offered = _offer(newcomer)
    newcomer.folder.identity_file.write_bytes(Identity.generate().to_bytes())

    done = feddc("join", offered, "--folder", newcomer.folder.path, answer="y\n")

    assert done.exit_code == 1
    assert "another identity for St Mary" in done.stderr
    assert newcomer.folder.roster() is None


def test_a_roster_without_this_hospital_is_refused(newcomer: Enrolled) -> None:
    offered = _offer(newcomer)
    newcomer.set("name", '"St Joseph"')

    done = feddc("join", offered, "--folder", newcomer.folder.path, answer="y\n")

    assert done.exit_code == 1
    assert "the roster calls this hospital St Mary" in done.stderr


def test_the_roster_of_another_study_than_the_configured_one_is_refused(
    newcomer: Enrolled,
) -> None:
    offered = _offer(newcomer, study="lungs")

    done = feddc("join", offered, "--folder", newcomer.folder.path, answer="y\n")

    assert done.exit_code == 1
    assert "roster of the study lungs; hospital.toml says hearts" in done.stderr


def test_a_newer_roster_replaces_the_pinned_one(enrolled: Enrolled) -> None:
    done = feddc("join", _offer(enrolled, epoch=2), "--folder", enrolled.folder.path, answer="y\n")

    assert done.exit_code == 0
    assert enrolled.folder.roster() == enrolled.roster(epoch=2)


def test_the_pinned_roster_again_changes_nothing(enrolled: Enrolled) -> None:
    done = feddc("join", _offer(enrolled), "--folder", enrolled.folder.path)

    assert done.exit_code == 0
    assert "already pinned" in done.stdout


def test_an_older_roster_is_refused(enrolled: Enrolled) -> None:
    enrolled.folder.pin(enrolled.roster(epoch=5).signed(enrolled.coordinator))

    done = feddc("join", _offer(enrolled, epoch=4), "--folder", enrolled.folder.path, answer="y\n")

    assert done.exit_code == 1
    assert "its epoch is 4, the pinned roster's is 5" in done.stderr
    assert enrolled.folder.roster() == enrolled.roster(epoch=5)


def test_another_coordinator_cannot_take_over(enrolled: Enrolled) -> None:
    usurper = Identity.generate()
    taken = type(enrolled)(enrolled.folder, usurper, enrolled.others)

    done = feddc("join", _offer(taken, epoch=9), "--folder", enrolled.folder.path, answer="y\n")

    assert done.exit_code == 1
    assert "another study or coordinator than the pinned" in done.stderr
    assert fingerprint(enrolled.coordinator.public) in done.stderr
    assert enrolled.folder.roster() == enrolled.roster()


# --- check and serve: nothing looser than agreed --------------------------------------------------


def _check(hospital: Enrolled) -> tuple[int, str]:
    done = feddc("check", "--folder", hospital.folder.path)
    return done.exit_code, done.stdout


def test_check_finds_everything_in_place(enrolled: Enrolled) -> None:
    code, text = _check(enrolled)

    assert code == 0
    assert "✗" not in text
    for subject in ("configuration", "state", "identity", "roster", "socket", "data", "network"):
        assert f" {subject}: " in text
    assert "48 examples to train on, 12 held out" in text
    assert "PATIENT" not in text


LOOSE: dict[str, tuple[Callable[[Enrolled], object], str]] = {
    "state for a group": (lambda h: h.folder.state.chmod(0o750), "chmod 0700"),
    "state for all": (lambda h: h.folder.state.chmod(0o755), "chmod 0700"),
    "a readable key": (lambda h: h.folder.identity_file.chmod(0o640), "chmod 0600"),
    "a link in the state": (
        lambda h: (h.folder.state / "extra").symlink_to("/etc/passwd"),
        "is not a file of the agent's user",
    ),
    "a socket folder for all": (lambda h: h.socket.parent.chmod(0o755), "chmod 0750"),
    "a socket folder the group can write": (lambda h: h.socket.parent.chmod(0o770), "chmod 0750"),
    "a socket folder with other things": (
        lambda h: (h.socket.parent / "records.csv").write_text("x"),
        "holds records.csv",
    ),
    "no socket folder": (lambda h: h.socket.parent.rmdir(), "mkdir -m 0750"),
    "another group's socket folder": (lambda h: h.set("group", '"54321"'), "chgrp 54321"),
    "a group that is not there": (lambda h: h.set("group", '"nobody-here"'), "no group"),
    "a configuration others can write": (
        lambda h: h.folder.configuration.chmod(0o620),
        "can be changed by others",
    ),
    "no roster": (lambda h: h.folder.roster_file.unlink(), "feddc hospital join"),
    "a cut-off roster": (
        lambda h: h.folder.roster_file.write_bytes(h.folder.roster_file.read_bytes()[:-9]),
        "roster",
    ),
    "no identity": (lambda h: h.folder.identity_file.unlink(), "no identity"),
    "a cut-off identity": (
        lambda h: h.folder.identity_file.write_bytes(b"short"),
        "32 bytes, got 5",
    ),
    "another's roster": (
        lambda h: h.folder.identity_file.write_bytes(Identity.generate().to_bytes()),
        "another identity for St Mary",
    ),
}


@pytest.mark.parametrize("case", LOOSE)
def test_check_says_what_is_wrong_and_what_to_do(case: str, enrolled: Enrolled) -> None:
    loosen, told = LOOSE[case]
    loosen(enrolled)

    code, text = _check(enrolled)

    assert code == 1
    (line,) = (line for line in text.splitlines() if line.startswith("✗"))
    assert told in text[text.index(line) :].split("\n✓")[0]


@pytest.mark.parametrize("case", ["state for a group", "a socket folder for all", "no roster"])
def test_an_agent_does_not_start_like_this(case: str, enrolled: Enrolled) -> None:
    loosen, told = LOOSE[case]
    loosen(enrolled)

    done = feddc("serve", "--folder", enrolled.folder.path)

    assert done.exit_code == 2
    assert told in done.stderr
    assert not enrolled.socket.exists()
    assert not enrolled.folder.store_file.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_ours(enrolled: Enrolled) -> None:
    os.chown(enrolled.folder.state, 54321, 54321)

    code, text = _check(enrolled)

    assert code == 1
    assert "belongs to 54321, not to root" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file another group")
def test_a_group_with_more_than_the_courier_is_refused(enrolled: Enrolled) -> None:
    import grp
    import pwd

    crowded = next(
        (
            group.gr_gid
            for group in grp.getgrall()
            if len(
                set(group.gr_mem)
                | {user.pw_name for user in pwd.getpwall() if user.pw_gid == group.gr_gid}
            )
            > 2
        ),
        None,
    )
    if crowded is None:
        pytest.skip("this machine has no group of three")
    os.chown(enrolled.socket.parent, -1, crowded)
    enrolled.set("group", f'"{crowded}"')

    code, text = _check(enrolled)

    assert code == 1
    assert "should hold the agent's and the courier's user only" in text


def test_an_access_list_is_noticed_though_the_mode_looks_right(enrolled: Enrolled) -> None:
    # user::rwx, user:54321:r-x, group::---, mask::r-x, other::---
    entries = [(1, 7, -1), (2, 5, 54321), (4, 0, -1), (16, 5, -1), (32, 0, -1)]
    packed = b"\x02\0\0\0" + b"".join(
        tag.to_bytes(2, "little")
        + allowed.to_bytes(2, "little")
        + (who % 2**32).to_bytes(4, "little")
        for tag, allowed, who in entries
    )
    try:
        os.setxattr(enrolled.socket.parent, "system.posix_acl_access", packed)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    assert stat.S_IMODE(enrolled.socket.parent.stat().st_mode) == 0o750

    code, text = _check(enrolled)

    assert code == 1
    assert "setfacl -b" in text


def test_too_few_examples_are_too_few(enrolled: Enrolled) -> None:
    enrolled.set("minimum-local-items", "500")

    code, text = _check(enrolled)

    assert code == 1
    assert "✗ data: 48 examples to train on, 12 held out; [policy] wants at least 500" in text


def test_data_that_everyone_can_read_are_warned_about(enrolled: Enrolled) -> None:
    (enrolled.folder.path / "data").chmod(0o755)

    code, text = _check(enrolled)

    assert code == 0
    assert "! data:" in text
    assert "the courier's too" in text


def test_check_names_the_key_of_a_broken_configuration(enrolled: Enrolled) -> None:
    enrolled.set("threads", "0")

    code, text = _check(enrolled)

    assert code == 1
    assert "✗ configuration: threads must be at least 1, got 0" in text


# --- audit ----------------------------------------------------------------------------------------


@pytest.fixture
def audited(enrolled: Enrolled) -> Enrolled:
    """A hospital that handed two models over, sent one for aggregation, and refused once."""
    store = SqliteStore(enrolled.folder.store_file)
    trail = AuditTrail(store, enrolled.folder.identity())
    for leg, recipient in ((1, "Mercy"), (2, "[red]Mercy"), (3, "coordinator"), (4, "Mercy")):
        trail.append(
            {
                "kind": "train-leg",
                "experiment": "e",
                "leg": leg,
                "digest": "00",
                "bytes": 1_500_000,
            },
            {"kind": "trained", "bytes": 1_600_000, "digest": "11", "recipient": recipient},
        )
    trail.append({"digest": "22", "bytes": 17}, {"kind": "refusal", "refusal": "malformed"})
    store.close()
    return enrolled


def test_audit_shows_what_left_and_to_whom(audited: Enrolled) -> None:
    done = feddc("audit", "--folder", audited.folder.path)

    assert done.exit_code == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1][0] == "1"
    assert rows[1][3:] == ["train-leg", "1", "1.5", "MB", "trained", "Mercy", "1.6", "MB", "–"]
    assert "[red]Mercy" in done.stdout  # a name is not markup
    assert rows[5][-1] == "malformed"
    assert "models sent to Mercy: 2" in done.stdout
    assert "models sent to coordinator: 1" in done.stdout
    assert "5 lines, all of them whole and in order" in done.stdout


def test_audit_gives_the_lines_themselves(audited: Enrolled) -> None:
    done = feddc("audit", "--folder", audited.folder.path, "--json")

    lines = done.stdout.splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [1, 2, 3, 4, 5]
    for before, after in pairwise(lines):
        assert json.loads(after)["previous"] == hashlib.sha256(before.encode()).hexdigest()


Lines = list[bytes]
BREAKS: dict[str, tuple[Callable[[Lines], Lines], int]] = {
    "a line changed": (lambda lines: [lines[0].replace(b"Mercy", b"Marcy"), *lines[1:]], 2),
    "the last line changed": (
        lambda lines: [*lines[:-1], lines[-1].replace(b"malformed", b"old-leg")],
        5,
    ),
    "a line removed": (lambda lines: lines[:2] + lines[3:], 3),
    "the last line removed": (lambda lines: lines[:-1], 5),
    "all lines removed": (lambda lines: [], 1),
    "a line added": (lambda lines: [*lines, lines[-1]], 6),
    "two lines swapped": (lambda lines: [*lines[:2], lines[3], lines[2], lines[4]], 3),
    "no line at all": (lambda lines: [*lines[:3], b"\xff", lines[4]], 4),
    "another spelling of a line": (lambda lines: [lines[0] + b" ", *lines[1:]], 1),
}


@pytest.mark.parametrize("case", BREAKS)
def test_audit_names_the_first_broken_line(case: str, audited: Enrolled) -> None:
    change, broken = BREAKS[case]
    with sqlite3.connect(audited.folder.store_file) as connection:
        lines = [line for (line,) in connection.execute("SELECT line FROM audit")]
        connection.execute("DELETE FROM audit")
        for line in change(lines):
            connection.execute("INSERT INTO audit (line) VALUES (?)", (line,))
    connection.close()

    for form in ([], ["--json"]):
        done = feddc("audit", "--folder", audited.folder.path, *form)
        assert done.exit_code == 1
        assert f"the log is broken: line {broken} " in done.stderr


def test_a_hospital_that_was_never_asked_has_an_empty_log(enrolled: Enrolled) -> None:
    done = feddc("audit", "--folder", enrolled.folder.path)

    assert done.exit_code == 0
    assert "0 lines" in done.stdout
    assert not enrolled.folder.store_file.exists()


def test_commands_other_than_serve_need_no_torch(enrolled: Enrolled) -> None:
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom lab.cli import app\n"
        f"folder = {str(enrolled.folder.path)!r}\n"
        "for command in ('check', 'audit'):\n"
        "    result = CliRunner().invoke(app, ['hospital', command, '--folder', folder])\n"
        "    assert result.exit_code == 0, result.output\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )


def _modes(folder: Path) -> dict[str, int]:
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in paths}
