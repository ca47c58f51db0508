"""`feddc hospital join`: a roster is shown, compared and pinned."""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.sealing.keys import Identity
from protocol.study.roster import fingerprint
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled


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
    offered = _offer(newcomer, generation=3)

    done = feddc("join", offered, "--folder", newcomer.folder.path, answer="y\n")

    assert done.exit_code == 0
    roster = newcomer.roster(generation=3)
    shown = [line.rstrip() for line in done.stdout.splitlines()]
    assert shown[:3] == [
        "study        hearts",
        "generation   3",
        f"coordinator  {fingerprint(newcomer.coordinator.public)}",
    ]
    for member in roster.members:
        you = "you" if member.name == "St Mary" else ""
        (line,) = (line for line in shown if line.startswith(f"{member.name} "))
        assert " ".join(line.split()) == f"{member.name} {member.fingerprint} {you}".strip()
    assert f"    {roster.fingerprint}" in shown
    assert "Your policy: nothing that leaves is readable for the coordinator." in done.stdout
    assert newcomer.folder.roster_file.read_bytes() == offered.read_bytes()
    assert stat.S_IMODE(newcomer.folder.roster_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_join_pins_nothing_without_a_yes(answer: str, newcomer: Enrolled) -> None:
    done = feddc("join", _offer(newcomer), "--folder", newcomer.folder.path, answer=answer)

    assert done.exit_code != 0
    assert newcomer.folder.roster() is None


@pytest.mark.parametrize("spelling", [str, lambda text: text.replace(" ", ""), str.lower])
def test_a_script_confirms_with_the_fingerprint(
    spelling: Callable[[str], str], newcomer: Enrolled
) -> None:
    agreed = spelling(newcomer.roster().fingerprint)

    done = feddc(
        "join", _offer(newcomer), "--folder", newcomer.folder.path, "--fingerprint", agreed
    )

    assert done.exit_code == 0
    assert newcomer.folder.roster() == newcomer.roster()


def test_a_script_that_expects_another_roster_pins_nothing(newcomer: Enrolled) -> None:
    agreed = newcomer.roster(generation=2).fingerprint

    done = feddc(
        "join", _offer(newcomer), "--folder", newcomer.folder.path, "--fingerprint", agreed
    )

    assert done.exit_code == 1
    assert "nothing was pinned" in done.stderr
    assert newcomer.folder.roster() is None


def test_the_former_option_for_a_fingerprint_is_refused_with_the_new_one(
    newcomer: Enrolled,
) -> None:
    agreed = newcomer.roster().fingerprint

    done = feddc("join", _offer(newcomer), "--folder", newcomer.folder.path, "--yes", agreed)

    assert done.exit_code == 2
    assert "--yes was renamed: use --fingerprint" in done.stderr
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
    assert "roster of the study lungs; hospital.toml names hearts" in done.stderr


def test_a_newer_roster_replaces_the_pinned_one(enrolled: Enrolled) -> None:
    done = feddc(
        "join", _offer(enrolled, generation=2), "--folder", enrolled.folder.path, answer="y\n"
    )

    assert done.exit_code == 0
    assert enrolled.folder.roster() == enrolled.roster(generation=2)


def test_the_pinned_roster_again_changes_nothing(enrolled: Enrolled) -> None:
    done = feddc("join", _offer(enrolled), "--folder", enrolled.folder.path)

    assert done.exit_code == 0
    assert "already pinned" in done.stdout


def test_an_older_roster_is_refused(enrolled: Enrolled) -> None:
    enrolled.folder.pin(enrolled.roster(generation=5).signed(enrolled.coordinator))

    done = feddc(
        "join", _offer(enrolled, generation=4), "--folder", enrolled.folder.path, answer="y\n"
    )

    assert done.exit_code == 1
    assert "its generation is 4, the pinned roster's is 5" in done.stderr
    assert enrolled.folder.roster() == enrolled.roster(generation=5)


def test_another_coordinator_cannot_take_over(enrolled: Enrolled) -> None:
    usurper = Identity.generate()
    taken = type(enrolled)(enrolled.folder, usurper, enrolled.others)

    done = feddc(
        "join", _offer(taken, generation=9), "--folder", enrolled.folder.path, answer="y\n"
    )

    assert done.exit_code == 1
    assert "another study or coordinator than the pinned" in done.stderr
    assert fingerprint(enrolled.coordinator.public) in done.stderr
    assert enrolled.folder.roster() == enrolled.roster()
