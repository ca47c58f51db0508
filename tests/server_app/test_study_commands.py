"""`feddc coordinator`: creating a study, enrolling hospitals, and their roster."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from client_app.enrol.enrolment import initialise
from client_app.hospital.agreement.policy import Policy
from client_app.hospital_folder import HospitalFolder
from operation.cli import app
from protocol.sealing.keys import Identity
from protocol.study.card import Card
from protocol.study.connection import Connection
from protocol.study.roster import Roster
from server_app.config.run_config import Settings
from server_app.experiment.experiment_folder import deployed_keys, parse
from server_app.study import certificates
from server_app.study.study_folder import Study, StudyError
from tests.server_app.commands import feddc, initialised

ROOT = Path(__file__).parents[2]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return initialised(tmp_path / "study")


@pytest.fixture
def card_of(tmp_path: Path) -> Callable[[str], Path]:
    """Make a hospital and return the file that it sends."""

    def made(name: str) -> Path:
        place = HospitalFolder(tmp_path / f"of {name} {len(list(tmp_path.iterdir()))}")
        return initialise(place, name, "")[1]

    return made


def fingerprint_of(card: Path) -> str:
    return Card.from_json(card.read_bytes()).fingerprint


def enrol(study: Study, card: Path) -> Result:
    return feddc("enrol", card, "--study", study.folder, "--fingerprint", fingerprint_of(card))


# --- init -----------------------------------------------------------------------------------------


def test_init_makes_a_study_whose_secrets_are_private(study: Study) -> None:
    assert (study.name, str(study.address)) == ("hearts", "fl.example.org:8443")
    assert stat.S_IMODE(study.folder.stat().st_mode) == 0o700
    for name in ("identity.key", "tls/ca.key", "tls/server.key"):
        assert stat.S_IMODE((study.folder / name).stat().st_mode) == 0o600
    connection = Connection.from_json((study.for_hospitals / "coordinator.json").read_bytes())
    assert connection.is_signed_by(study.identity().public)
    assert connection.certificate == study.authority.read_text()
    secret = [study.identity_file.read_bytes().hex(), (study.tls / "ca.key").read_text()]
    for path in (*study.for_hospitals.iterdir(), study.folder / "compose.yaml"):
        assert not any(text in path.read_text() for text in secret)


def test_init_never_overwrites(study: Study) -> None:
    before = study.identity_file.read_bytes()

    done = feddc("init", "--name", "x", "--address", "h:1", "--study", study.folder)

    assert done.exit_code == 2
    assert "already exists" in done.stderr
    assert study.identity_file.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "address", "said"),
    [
        ("a/b", "h:1", "name must be"),
        ("hearts", "h", "address must be HOST:PORT"),
        ("hearts", "h:0", "address must be HOST:PORT"),
        ("hearts", "h:70000", "address must be HOST:PORT"),
        ("hearts", "https://h:1", "address 'https://h' is neither"),
        ("hearts", "a b:1", "address 'a b' is neither"),
        ("hearts", "::1:80", "address '::1' is neither"),
    ],
)
def test_init_says_what_is_wrong(name: str, address: str, said: str, tmp_path: Path) -> None:
    done = feddc("init", "--name", name, "--address", address, "--study", tmp_path / "s")

    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "s").exists()


def test_init_writes_every_setting_of_a_study_with_its_default(study: Study) -> None:
    settings, defaults = study.settings(), Settings.defaults()

    assert settings.keys() == deployed_keys()
    for key in settings.keys() & defaults.keys():
        assert settings[key] == defaults[key]
    parse(settings | {"input-shape": "30", "classes": 2}, hospitals=3)


def test_the_study_s_folder_may_come_from_the_environment(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDDC_STUDY", str(study.folder))

    assert "2 members" in feddc("roster").stderr


@pytest.mark.parametrize(
    "command", [["roster"], ["up"], ["down"], ["status"], ["run"], ["renew-certificate"]]
)
def test_a_folder_that_is_no_study_s_is_said_in_one_line(
    command: list[str], tmp_path: Path
) -> None:
    done = feddc(*command, "--study", tmp_path)

    assert done.exit_code == 2
    assert done.stderr.startswith(f"feddc: {tmp_path} is not a study's folder")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("internal-port = 0", "internal-port must be at least 1"),
        ('colour = "red"', "colour is not a setting"),
        ("name =", "not TOML"),
    ],
)
def test_a_wrong_study_file_is_said(line: str, said: str, study: Study) -> None:
    file = study.folder / "study.toml"
    values = tomllib.loads(file.read_text())
    values.pop(line.split(" ")[0], None)
    rest = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    file.write_text("\n".join([*rest, line]))

    with pytest.raises(StudyError, match=said):
        Study.open(study.folder)


# --- enrol, remove, roster ------------------------------------------------------------------------


def test_enrol_shows_the_fingerprint_and_asks(study: Study, card_of: Callable[[str], Path]) -> None:
    card = card_of("St Mary")

    refused = feddc("enrol", card, "--study", study.folder, answer="n\n")
    assert refused.exit_code != 0
    assert not list(study.members.iterdir())

    done = feddc("enrol", card, "--study", study.folder, answer="y\n")
    assert done.exit_code == 0
    assert "St Mary" in done.stdout
    assert fingerprint_of(card) in done.stdout
    assert (study.members / "St Mary.json").read_bytes() == card.read_bytes()


def test_enrol_with_another_fingerprint_is_refused(
    study: Study, card_of: Callable[[str], Path]
) -> None:
    other = fingerprint_of(card_of("Mercy"))

    done = feddc("enrol", card_of("St Mary"), "--study", study.folder, "--fingerprint", other)

    assert done.exit_code == 1
    assert "not enrolled" in done.stderr
    assert not list(study.members.iterdir())


def test_enrolling_again_changes_nothing(study: Study, card_of: Callable[[str], Path]) -> None:
    card = card_of("Mercy")
    enrol(study, card)

    done = enrol(study, card)

    assert done.exit_code == 0
    assert "a member already" in done.stdout


def test_a_member_s_name_is_not_taken_over(study: Study, card_of: Callable[[str], Path]) -> None:
    first = card_of("Mercy")
    enrol(study, first)
    for impostor in ("Mercy", "MERCY"):
        done = enrol(study, card_of(impostor))
        assert done.exit_code == 1
    assert (study.members / "Mercy.json").read_bytes() == first.read_bytes()


@pytest.mark.parametrize("field", ["name", "identity", "transport", "signature", "fingerprint"])
def test_a_card_that_was_changed_on_its_way_is_refused(
    field: str, study: Study, card_of: Callable[[str], Path]
) -> None:
    card, other = card_of("Mercy"), card_of("Charite")
    fields = json.loads(card.read_text())
    fields[field] = json.loads(other.read_text())[field]
    card.write_text(json.dumps(fields))

    done = feddc("enrol", card, "--study", study.folder, answer="y\n")

    assert done.exit_code == 1
    assert not list(study.members.iterdir())


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[1]", b"x" * 20_000])
def test_a_file_that_is_no_card_is_refused_in_one_line(content: bytes, study: Study) -> None:
    file = study.folder / "card"
    file.write_bytes(content)

    done = feddc("enrol", file, "--study", study.folder)

    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1


def test_a_roster_has_an_generation_for_each_list_of_members(
    study: Study, card_of: Callable[[str], Path]
) -> None:
    assert feddc("roster", "--study", study.folder).exit_code == 1  # nobody is enrolled
    for name in ("Mercy", "Charite"):
        enrol(study, card_of(name))

    done = feddc("roster", "--study", study.folder, "--yes")
    assert done.exit_code == 0
    assert (study.roster().generation, study.roster().names) == (1, ("Charite", "Mercy"))
    assert study.roster().fingerprint in done.stdout

    feddc("roster", "--study", study.folder)
    assert study.roster().generation == 1

    enrol(study, card_of("St Mary"))
    feddc("roster", "--study", study.folder)
    assert (study.roster().generation, len(study.roster().members)) == (2, 3)

    done = feddc("remove", "Mercy", "--study", study.folder, "--yes")
    assert done.exit_code == 0
    feddc("roster", "--study", study.folder, "--yes")
    assert (study.roster().generation, study.roster().names) == (3, ("Charite", "St Mary"))
    sent = Roster.from_signed((study.for_hospitals / "roster").read_bytes())
    assert sent == study.roster()


def test_a_roster_that_hospitals_would_refuse_is_questioned(
    study: Study, card_of: Callable[[str], Path]
) -> None:
    for name in ("Mercy", "Charite"):
        enrol(study, card_of(name))

    done = feddc("roster", "--study", study.folder, answer="n\n")
    assert done.exit_code == 1
    assert "This study has 2 members" in done.stderr
    assert f"fewer than {Policy().minimum_cohort} unless they lower minimum-cohort" in done.stderr
    assert not study.roster_file.exists()

    done = feddc("roster", "--study", study.folder, answer="y\n")
    assert done.exit_code == 0
    assert study.roster().names == ("Charite", "Mercy")
    assert "2 members" not in feddc("roster", "--study", study.folder).stderr  # nothing is new

    enrol(study, card_of("St Mary"))
    assert "members, and" not in feddc("roster", "--study", study.folder).stderr
    assert len(study.roster().members) == 3


def test_removing_a_stranger_is_refused(study: Study) -> None:
    done = feddc("remove", "Mercy", "--study", study.folder, "--yes")

    assert done.exit_code == 1
    assert "Mercy is not a member" in done.stderr


@pytest.fixture
def mercy(study: Study, tmp_path: Path, card_of: Callable[[str], Path]) -> HospitalFolder:
    """A hospital that is on the study's roster and has not joined yet."""
    place = HospitalFolder(tmp_path / "mercy")
    enrol(study, initialise(place, "Mercy", "")[1])
    enrol(study, card_of("Charite"))
    feddc("roster", "--study", study.folder, "--yes")
    return place


def join(study: Study, place: HospitalFolder) -> Result:
    """Pin what the coordinator sends to hospitals."""
    roster, fingerprint = study.for_hospitals / "roster", study.roster().fingerprint
    options = ["--folder", str(place.path), "--fingerprint", fingerprint]
    return CliRunner().invoke(app, ["hospital", "join", str(roster), *options])


def test_a_hospital_joins_with_what_the_coordinator_sends(
    study: Study, mercy: HospitalFolder
) -> None:
    done = join(study, mercy)

    assert done.exit_code == 0, done.output
    assert mercy.roster() == study.roster()
    connection = mercy.connection()
    assert connection is not None
    assert str(connection.address) == "fl.example.org:8443"


def test_a_connection_to_another_coordinator_is_refused(
    study: Study, mercy: HospitalFolder
) -> None:
    evil = Connection.make(study.address, study.authority.read_text(), Identity.generate())
    (study.for_hospitals / "coordinator.json").write_text(evil.to_json())
    done = join(study, mercy)

    assert done.exit_code == 1
    assert "not signed by the coordinator" in done.stderr
    assert mercy.roster() is None


# --- run, without a SuperLink ---------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "resume", "stop"])
def test_without_a_superlink_nothing_is_started(
    command: str, study: Study, card_of: Callable[[str], Path]
) -> None:
    for name in ("Mercy", "Charite"):
        enrol(study, card_of(name))
    feddc("roster", "--study", study.folder, "--yes")

    done = feddc(command, "--study", study.folder)

    assert done.exit_code == 2
    assert done.stderr == "feddc: the coordinator is not up: start it with `feddc coordinator up`\n"
    assert not list(study.experiments.iterdir())


def test_run_wants_the_roster_of_the_present_members(
    study: Study, card_of: Callable[[str], Path]
) -> None:
    assert "there is no roster yet" in feddc("run", "--study", study.folder).stderr
    for name in ("Mercy", "Charite"):
        enrol(study, card_of(name))
    feddc("roster", "--study", study.folder, "--yes")
    enrol(study, card_of("St Mary"))

    done = feddc("run", "--study", study.folder)

    assert done.exit_code == 2
    assert "the members have changed since the last roster" in done.stderr


def test_status_tells_what_the_folder_tells(study: Study, card_of: Callable[[str], Path]) -> None:
    enrol(study, card_of("Mercy"))

    seen = json.loads(feddc("status", "--study", study.folder, "--json").stdout)

    assert seen["services"] == {"superlink": False, "proxy": False}
    (mercy,) = seen["hospitals"]
    assert (mercy["name"], mercy["connected"], mercy["last_seen"]) == ("Mercy", False, None)
    assert seen["experiments"] == []
    shown = feddc("status", "--study", study.folder).stdout
    assert "superlink, proxy not up" in shown
    assert "Mercy" in shown


def test_status_warns_in_the_last_month_of_the_certificate(study: Study) -> None:
    assert "expires" not in feddc("status", "--study", study.folder).stdout
    made = datetime.now(UTC) - timedelta(days=350)
    tls = study.folder / "new-tls"
    tls.mkdir()
    certificates.make_authority(tls, "hearts", made)
    certificates.make_server_certificate(tls, study.address.host, made)
    shutil.rmtree(study.tls)
    tls.rename(study.tls)

    shown = " ".join(feddc("status", "--study", study.folder).stdout.split())

    assert "valid for 14 days; the server's certificate expires in 14 days: run" in shown


def test_commands_before_a_run_need_neither_torch_nor_flower(study: Study) -> None:
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom operation.cli import app\n"
        "for command in ('roster', 'down', 'up --only proxy --foreground --help', 'run --help'):\n"
        f"    words = ['coordinator', *command.split(), '--study', {str(study.folder)!r}]\n"
        "    CliRunner().invoke(app, words)\n"
        "assert not {'torch', 'flwr'} & sys.modules.keys()\n"
    )
    subprocess.run(
        [sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
