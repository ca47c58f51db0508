"""hospital.toml: what is written for the user can be read, and mistakes are named."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from client_app.configuration import AgentSection, Configuration, DataSection, template
from client_app.hospital.agreement.policy import Policy
from learning.local_data import load_own
from learning.settings import LocalSettings
from operation.config import SettingsError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hospital.toml"
    path.write_text(template("St Mary", "hearts"))
    return path


def test_the_file_made_for_a_new_hospital_says_what_the_defaults_are(file: Path) -> None:
    read = Configuration.read(file)

    assert (read.hospital.name, read.hospital.study) == ("St Mary", "hearts")
    assert read.data == DataSection()
    assert read.policy == Policy()
    assert read.agent == AgentSection()
    assert read.agent.maximum_request_bytes == 512 * 1024 * 1024


def test_every_key_in_it_has_a_comment(file: Path) -> None:
    lines = file.read_text().splitlines()

    keys = [number for number, line in enumerate(lines) if re.match(r"[a-z-]+ = ", line)]
    assert len(keys) == sum(len(section) for section in tomllib.loads(file.read_text()).values())
    assert [lines[number] for number in keys if not lines[number - 1].startswith("# ")] == []


def test_settings_of_simulated_hospitals_are_not_in_it(file: Path) -> None:
    assert "simulat" not in file.read_text()


def test_paths_are_relative_to_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")

    read = Configuration.read(file)

    assert read.socket == file.parent / "socket" / "agent.sock"
    assert read.local.data_dir == str(file.parent / "data")


def test_a_path_may_be_absolute(file: Path) -> None:
    _replace(file, 'socket = "socket/agent.sock"', 'socket = "/run/feddc/agent.sock"')
    _replace(file, 'data-dir = "data"', 'data-dir = "/srv/records"')

    read = Configuration.read(file)

    assert str(read.socket) == "/run/feddc/agent.sock"
    assert read.local.data_dir == "/srv/records"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("minimum-cohort = 3", "minimum-cohorts = 3", r"minimum-cohorts is not a setting"),
        ("minimum-cohort = 3", "minimum-cohort = 1", r"minimum-cohort must be at least 2, got 1"),
        ("threads = 1", "threads = true", r"threads must be a whole number, got True"),
        ('name = "St Mary"', 'name = "St/Mary"', r"name must be 1 to 64 letters.* got 'St/Mary'"),
        ('name = "St Mary"', "", r"name is missing"),
        ('dataset = "csv"', "examples = 3", r"examples is for simulated hospitals only"),
        ("minimum-cohort = 3", "sealed = false", r"sealed is for simulated hospitals only"),
        (
            "[agent]",
            "[agents]",
            r"agents is not a section; the sections are hospital, data",
        ),
        ("[agent]", "[agent", r"not TOML: .*line"),
        ('socket = "', 'socket = "' + "x" * 108, r"socket must be at most 107 bytes"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_section(
    old: str, new: str, message: str, file: Path
) -> None:
    _replace(file, old, new)

    with pytest.raises(SettingsError, match=message) as error:
        Configuration.read(file)

    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("former", "message"),
    [
        ("minimum-local-items = 2", "minimum-local-items was renamed: use minimum-local-examples"),
        (
            "max-share-per-recipient = 0.5",
            "max-share-per-recipient was renamed: use maximum-fraction-per-recipient",
        ),
        ("unsealed = true", "unsealed was renamed: use sealed, with the opposite value"),
    ],
)
def test_a_former_name_is_refused_with_the_new_one(former: str, message: str, file: Path) -> None:
    _replace(file, "minimum-cohort = 3", former)

    with pytest.raises(SettingsError, match=re.escape(f"{message} ({file}, [policy])")):
        Configuration.read(file)


def test_a_section_must_be_one(tmp_path: Path) -> None:
    path = tmp_path / "hospital.toml"
    path.write_text('data = "records.csv"')

    with pytest.raises(SettingsError, match=r"data must be a section, \[data\]"):
        Configuration.read(path)


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no such file; create it with `feddc hospital init`"):
        Configuration.read(tmp_path / "hospital.toml")


# --- the data it leads to -------------------------------------------------------------------------


def _own(path: Path, **settings: object) -> LocalSettings:
    values = {"dataset": "csv", "data-dir": str(path)} | settings
    return LocalSettings.parse(values, source="test")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Fifty visits of twenty patients; the measurement `a` is the visit's number."""
    path = tmp_path / "records.csv"
    lines = [f"{n},{n % 20},{'yes' if n % 2 else 'no'}" for n in range(50)]
    path.write_text("\n".join(["a,patient_id,label", *lines]))
    return path


def test_all_of_a_hospitals_records_are_its_own_and_none_is_in_both_parts(records: Path) -> None:
    partition = load_own(_own(records), "St Mary", standardise=False)

    visits = np.concatenate([partition.train.features[:, 0], partition.held_out.features[:, 0]])
    assert sorted(visits.tolist()) == list(range(50))
    assert partition.name == "St Mary"
    assert 0 < len(partition.held_out) <= 10  # test-fraction is 0.2
    patients = [
        set((part.features[:, 0] % 20).tolist()) for part in (partition.train, partition.held_out)
    ]
    assert patients[0].isdisjoint(patients[1])


def test_what_is_held_out_stays_so_after_a_restart(records: Path) -> None:
    first, second = (load_own(_own(records), "St Mary") for _ in range(2))

    assert np.array_equal(first.held_out.features, second.held_out.features)
    assert np.array_equal(first.train.features, second.train.features)


def test_the_scale_is_that_of_the_training_examples(records: Path) -> None:
    partition = load_own(_own(records), "St Mary")

    assert partition.train.features.mean() == pytest.approx(0, abs=1e-6)
    assert partition.train.features.std() == pytest.approx(1, abs=1e-6)


def test_a_class_that_is_missing_here_does_not_change_what_labels_mean(records: Path) -> None:
    partition = load_own(_own(records), "St Mary", classes=("maybe", "no", "yes"))

    assert set(partition.train.labels.tolist()) == {1, 2}


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
