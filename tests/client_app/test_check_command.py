"""`feddc hospital check` and `serve`: nothing is looser than agreed."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import pytest

from client_app.check import checks
from client_app.check.messages import check_messages
from client_app.connect.message_record import FILE_NAME, MessageTimes
from client_app.state.sqlite_store import SqliteStore
from protocol.sealing.keys import Identity
from tests.client_app.commands import feddc
from tests.client_app.conftest import ROOT, Enrolled


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


def test_check_says_what_the_policy_lets_the_coordinator_reconstruct(enrolled: Enrolled) -> None:
    _, text = _check(enrolled)
    assert "✓ disclosure: nothing that leaves is readable" in text

    enrolled.set("plain-aggregation", "true")
    _, text = _check(enrolled)
    assert "! disclosure: the coordinator may read the models" in text
    assert "figures" not in text

    enrolled.set("metrics", '["loss", "held-out"]')
    _, text = _check(enrolled)
    assert "may read loss, held-out: from such figures" in " ".join(text.split())


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
    loosen, message = LOOSE[case]
    loosen(enrolled)

    code, text = _check(enrolled)

    assert code == 1
    (line,) = (line for line in text.splitlines() if line.startswith("✗"))
    assert message in text[text.index(line) :].split("\n✓")[0]


HOUR = 3600.0
MESSAGES: dict[str, tuple[MessageTimes, str]] = {
    "answered": (
        MessageTimes(received=HOUR, answered=HOUR + 2),
        "✓ messages: the last came at 1970-01-01 01:00:00 UTC and was answered at "
        "1970-01-01 01:00:02 UTC",
    ),
    "at work": (
        MessageTimes(received=2 * HOUR, answered=HOUR),
        "✓ messages: the last came at 1970-01-01 02:00:00 UTC and has no answer yet",
    ),
    "lost": (
        MessageTimes(received=HOUR, restarted=2 * HOUR, restarts=3),
        "! messages: one got lost: the SuperNode was restarted at 1970-01-01 02:00:00 UTC "
        "(3 in all); the last came at 1970-01-01 01:00:00 UTC and has no answer yet",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_check_says_when_a_message_came_and_whether_one_was_lost(
    case: str, enrolled: Enrolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, line = MESSAGES[case]
    (enrolled.folder.transport / FILE_NAME).write_text(json.dumps(asdict(times)))
    monkeypatch.setattr(checks, "check_messages", partial(check_messages, now=lambda: 3 * HOUR))

    code, text = _check(enrolled)

    assert code == 0
    assert line in text.splitlines()


def test_check_does_not_mention_messages_where_connect_has_never_run(enrolled: Enrolled) -> None:
    assert "messages" not in _check(enrolled)[1]


@pytest.mark.parametrize("case", ["state for a group", "a socket folder for all", "no roster"])
def test_an_agent_does_not_start_with_anything_wrong(case: str, enrolled: Enrolled) -> None:
    loosen, message = LOOSE[case]
    loosen(enrolled)

    done = feddc("serve", "--folder", enrolled.folder.path)

    assert done.exit_code == 2
    assert message in done.stderr
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
    enrolled.set("minimum-local-examples", "500")

    code, text = _check(enrolled)

    assert code == 1
    assert "✗ data: 48 examples to train on, 12 held out; [policy] requires at least 500" in text


def test_data_that_everyone_can_read_are_warned_about(enrolled: Enrolled) -> None:
    (enrolled.folder.path / "data").chmod(0o755)

    code, text = _check(enrolled)

    assert code == 0
    assert "! data:" in text
    assert "the courier's too" in text


def test_check_lists_all_problems_of_the_data_at_once(enrolled: Enrolled) -> None:
    names = [f"c{number:02}" for number in range(25)]
    rows = [",".join(["?"] * 25 + [str(row % 2)]) for row in range(60)]
    file = enrolled.folder.path / "data" / "records.csv"
    file.write_text("\n".join([",".join([*names, "label"]), *rows]))

    code, text = _check(enrolled)

    assert code == 2
    lines = [line for line in text.splitlines() if line.startswith("✗ data: ")]
    assert len(lines) == 21
    for name, line in zip(names[:20], lines[:20], strict=True):
        assert f"line 2: column '{name}' is not a number" in line
    assert lines[20] == "✗ data: and 5 more"
    assert text.count("→ correct the data, or [data] in hospital.toml") == 1


def test_a_broken_configuration_hides_no_other_problem(enrolled: Enrolled) -> None:
    enrolled.set("threads", "0")
    enrolled.set("minimum-batch", "0")
    enrolled.folder.state.chmod(0o755)

    code, text = _check(enrolled)

    assert code == 1
    assert "threads must be at least 1, got 0" in text
    assert "minimum-batch must be at least 1, got 0" in text
    assert "chmod 0700" in text


def test_check_names_the_key_of_a_broken_configuration(enrolled: Enrolled) -> None:
    enrolled.set("threads", "0")

    code, text = _check(enrolled)

    assert code == 1
    assert "✗ configuration: threads must be at least 1, got 0" in text


def test_commands_other_than_serve_need_no_torch(enrolled: Enrolled) -> None:
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom operation.cli import app\n"
        f"folder = {str(enrolled.folder.path)!r}\n"
        "for command in ('check', 'audit'):\n"
        "    result = CliRunner().invoke(app, ['hospital', command, '--folder', folder])\n"
        "    assert result.exit_code == 0, result.output\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )


def test_an_experiment_without_its_key_is_reported(enrolled: Enrolled) -> None:
    store = SqliteStore(enrolled.folder.store_file)
    store.put("e1/entry", b"value")
    store.close()
    (key,) = (enrolled.folder.state / "keys").iterdir()
    assert "✓ keys: " in feddc("check", "--folder", enrolled.folder.path).stdout
    key.unlink()

    found = feddc("check", "--folder", enrolled.folder.path).stdout

    assert "! store: experiment e1 is refused: " in found


def test_a_key_that_others_can_read_is_reported(enrolled: Enrolled) -> None:
    store = SqliteStore(enrolled.folder.store_file)
    store.put("e1/entry", b"value")
    store.close()
    (key,) = (enrolled.folder.state / "keys").iterdir()
    key.chmod(0o640)

    found = feddc("check", "--folder", enrolled.folder.path)

    assert found.exit_code == 1
    assert f"chmod 0600 {key}" in found.stdout
