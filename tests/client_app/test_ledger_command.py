"""`feddc hospital ledger`: what is shown of a ledger with lines, an empty and a damaged one."""

import json
import math
import shutil
from typing import Any

import pytest

from client_app.hospital_folder import HospitalFolder
from client_app.state.privacy.ledger import PrivacyLedger
from client_app.state.privacy.ledger_file import open_ledger_file
from client_app.state.sqlite_store import SqliteStore
from tests.client_app.commands import feddc
from tests.client_app.conftest import Enrolled
from tests.privacy.ledger_site import exact_epsilon

CHARGES = [
    ("hearts", 1, (8.0, 1.0, 3)),
    ("hearts", 2, (8.0, 1.0, 3)),
    ("[red]lungs", 1, (5.0, 1.0, 2)),
    ("open", 1, (0.0, 1.0, 1)),
]


def charge(folder: HospitalFolder, charges: list[Any]) -> None:
    store = SqliteStore(folder.store_file)
    ledger = PrivacyLedger(store, open_ledger_file(folder.privacy_ledger_file))
    for experiment, leg, release in charges:
        with store.transaction():
            ledger.charge(f"{experiment} {leg}".encode(), experiment, leg, [release])
    store.close()


@pytest.fixture
def charged(enrolled: Enrolled) -> HospitalFolder:
    charge(enrolled.folder, CHARGES)
    return enrolled.folder


def test_the_table_has_every_experiment_and_the_sum(charged: HospitalFolder) -> None:
    done = feddc("ledger", "--folder", charged.path)

    assert done.exit_code == 0
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    alone = {"hearts": math.sqrt(6) / 8, "[red]lungs": math.sqrt(2) / 5}
    for name, releases in (("hearts", "6"), ("[red]lungs", "2")):  # a name is not markup
        assert rows[name] == [releases, f"{exact_epsilon(alone[name]):.4g}", "–"]
    assert rows["open"] == ["0", "–", "1"]
    total = exact_epsilon(math.hypot(*alone.values()))
    assert f"All releases with noise: ε = {total:.4g}, without a limit (δ = 1e-05)." in done.stdout
    assert "1 leg left without noise: no ε holds for patients" in done.stdout


def test_json_has_the_same_figures(charged: HospitalFolder) -> None:
    done = feddc("ledger", "--folder", charged.path, "--json")

    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["epsilon"] == pytest.approx(exact_epsilon(math.sqrt(6 / 64 + 2 / 25)), rel=1e-3)
    assert {one["experiment"]: one["releases"] for one in found["experiments"]} == {
        "hearts": 6,
        "[red]lungs": 2,
        "open": 0,
    }
    assert (found["lines"], found["without_noise"], found["problem"]) == (4, 1, "")
    assert (found["delta"], found["max_epsilon"]) == (1e-5, None)


def test_next_to_no_noise_is_null_in_json_and_infinite_in_the_table(enrolled: Enrolled) -> None:
    charge(enrolled.folder, [("hearts", 1, (1e-3, 1.0, 1))])

    found = json.loads(
        feddc("ledger", "--folder", enrolled.folder.path, "--json").stdout,
        parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"),
    )
    assert found["epsilon"] is found["experiments"][0]["epsilon"] is None
    assert "ε = inf" in feddc("ledger", "--folder", enrolled.folder.path).stdout


def test_an_empty_ledger_has_spent_nothing(enrolled: Enrolled) -> None:
    shown = feddc("ledger", "--folder", enrolled.folder.path)
    found = feddc("ledger", "--folder", enrolled.folder.path, "--json")

    assert (shown.exit_code, found.exit_code) == (0, 0)
    assert "All releases with noise: ε = 0, without a limit" in shown.stdout
    assert json.loads(found.stdout)["experiments"] == []


@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=["table", "json"])
def test_a_changed_line_is_an_error_that_names_it(
    charged: HospitalFolder, arguments: list[str]
) -> None:
    path = charged.privacy_ledger_file
    path.write_bytes(path.read_bytes().replace(b"8.0", b"9.0", 1))

    done = feddc("ledger", "--folder", charged.path, *arguments)

    assert done.exit_code != 0
    assert not done.stdout
    message = " ".join(done.stderr.split())
    assert "line 2 does not follow the one before; restore the file from its latest" in message


def test_a_restored_store_shows_all_that_the_file_knows_and_fails(
    charged: HospitalFolder,
) -> None:
    backup = charged.store_file.with_suffix(".backup")
    shutil.copy(charged.store_file, backup)
    charge(charged, [("hearts", 3, (8.0, 1.0, 3)), ("hearts", 4, (8.0, 1.0, 3))])
    shutil.copy(backup, charged.store_file)

    done = feddc("ledger", "--folder", charged.path, "--json")

    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["experiments"][1]["releases"] == 12
    assert "has 6 lines, the store knows 4: one was restored" in found["problem"]
    assert "restored from a backup" in done.stderr
