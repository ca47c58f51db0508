"""The run configuration: every wrong value is named before anything starts."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.flower import simulate
from learning.data import DataError
from learning.local_data import load_dataset, load_partitions
from learning.models import ModelError
from learning.settings import LocalSettings, TrainingSettings
from operation.config import SettingsError, SettingsGroup
from server_app.config.run_config import AlgorithmSettings, Settings, preflight
from server_app.config.settings_docs import generated
from tests.conftest import TINY

PROJECT = Path(__file__).resolve().parents[2]
GROUPS: tuple[type[SettingsGroup], ...] = (AlgorithmSettings, TrainingSettings, LocalSettings)


def parse(**changes: Any) -> Settings:
    values = {key.replace("_", "-"): value for key, value in changes.items()}
    return Settings.from_run_config(values, source="here")


# --- one list of settings -------------------------------------------------------------------------


def test_pyproject_lists_every_setting_with_its_default() -> None:
    # Flower takes only keys that are listed there, and passes those values on.
    with (PROJECT / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["flwr"]["app"]["config"]

    assert listed == Settings.defaults()
    assert {key: type(value) for key, value in listed.items()} == {
        key: type(value) for key, value in Settings.defaults().items()
    }


@pytest.mark.parametrize("name", ["pyproject.toml", "docs/settings.md"])
def test_the_generated_files_say_what_the_declarations_say(name: str) -> None:
    path = PROJECT / name

    assert path.read_text(encoding="utf-8") == generated(PROJECT)[path], "run `make settings`"


def test_a_declaration_decides_what_the_generated_files_say(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    project, page = tmp_path / "pyproject.toml", tmp_path / "docs" / "settings.md"
    project.write_text("[tool.flwr.app.config]\nold = 1\n\n[tool.ruff]\nx = 1\n", encoding="utf-8")
    page.write_text(
        "Before.\n<!-- settings: data -->\nold\n<!-- end -->\nAfter.\n", encoding="utf-8"
    )

    files = generated(tmp_path)

    assert tomllib.loads(files[project])["tool"] == {
        "flwr": {"app": {"config": Settings.defaults()}},
        "ruff": {"x": 1},
    }
    lines = files[page].splitlines()
    assert lines[:2] == ["Before.", "<!-- settings: data -->"]
    assert lines[-2:] == ["<!-- end -->", "After."]
    assert [line.split("`")[1] for line in lines[4:-2]] == list(LocalSettings.key_names())
    assert "| `held-out` | `8` | 0 or more | Examples per hospital that it never" in files[page]
    assert "| `test-fraction` | `0.2` | above 0, below 1 |" in files[page]
    assert '| `device` | `"cpu"` | `cpu`, `cuda`, `mps`, `auto` |' in files[page]


def test_a_key_belongs_to_one_group() -> None:
    keys = [key for group in GROUPS for key in group.key_names()]

    # μ alone is in two: the coordinator sets it, and hospitals learn it from the descriptor.
    assert sorted(key for key in set(keys) if keys.count(key) > 1) == ["proximal-mu"]
    assert set(keys) == set(Settings.defaults())


def test_every_setting_is_described_in_one_line() -> None:
    for name, field in AlgorithmSettings.model_fields.items():
        assert field.description, name
        assert "\n" not in field.description


def test_settings_left_out_have_their_defaults() -> None:
    assert parse() == Settings.from_run_config(Settings.defaults(), source="here")
    assert parse().as_config() == Settings.defaults()


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "rounds": st.integers(1, 10**6),
            "fraction": st.floats(0.01, 1),
            "permutation": st.sampled_from(["uniform", "derangement", "coverage"]),
            "sealed": st.booleans(),
            "proximal-mu": st.floats(0, 10),
            "learning-rate": st.floats(1e-6, 10),
            "run-dir": st.text(max_size=10),
            "examples": st.integers(1, 1000),
            "seed": st.integers(0, 2**63 - 1),
        },
    )
)
def test_settings_come_back_from_the_configuration_they_give(changes: dict[str, Any]) -> None:
    chosen = Settings.from_run_config(changes, source="here")

    assert chosen.as_config() == Settings.defaults() | changes
    assert Settings.from_run_config(chosen.as_config(), source="here") == chosen


def test_changed_settings_are_checked_again() -> None:
    assert parse(seed=4).replace(batch_size=3, rounds=7) == parse(seed=4, batch_size=3, rounds=7)
    with pytest.raises(SettingsError, match=r"rounds must be at least 1, got 0"):
        parse().replace(rounds=0)


def test_a_hospital_learns_mu_only_from_the_aggregator() -> None:
    # Set for a FedProx that is not used, it must not pull anybody's training.
    assert parse(proximal_mu=5.0).training.proximal_mu == 0.0


# --- wrong values ---------------------------------------------------------------------------------

WRONG: list[tuple[str, Any, str]] = [
    ("rounds", 0, "must be at least 1, got 0"),
    ("rounds", -5, "must be at least 1, got -5"),
    ("rounds", 10.0, "must be a whole number, got 10.0"),
    ("rounds", "10", "must be a whole number, got '10'"),
    ("rounds", True, "must be a whole number, got True"),
    ("daisy-period", -1, "must be at least 0, got -1"),
    ("daisy-period", "never", "must be a whole number, got 'never'"),
    ("aggregation-period", -1, "must be at least 0, got -1"),
    ("aggregation-period", 2.5, "must be a whole number, got 2.5"),
    ("sealed", 1, "must be true or false, got 1"),
    ("sealed", "true", "must be true or false, got 'true'"),
    ("schedule", "weekly", "must be one of 'periodic' or 'random', got 'weekly'"),
    (
        "permutation",
        "cyclic",
        "must be one of 'uniform', 'derangement' or 'coverage', got 'cyclic'",
    ),
    ("fraction", 0, "must be more than 0.0, got 0.0"),
    ("fraction", 1.01, "must be at most 1.0, got 1.01"),
    ("fraction", True, "must be a finite number, got True"),
    ("fraction", float("nan"), "must be"),
    ("init", "random", "must be one of 'shared' or 'own', got 'random'"),
    ("weighting", "size", "must be one of 'equal', 'examples' or 'chain-examples', got 'size'"),
    ("aggregator", "FedAvg", "must be one of 'fedavg', "),
    ("proximal-mu", -1.0, "must be at least 0.0, got -1.0"),
    ("proximal-mu", float("inf"), "must be a finite number, got inf"),
    ("server-learning-rate", -0.1, "must be at least 0.0, got -0.1"),
    ("server-momentum", 1.0, "must be less than 1.0, got 1.0"),
    ("krum-malicious", -1, "must be at least 0, got -1"),
    ("trim-fraction", 0.5, "must be less than 0.5, got 0.5"),
    ("qfedavg-q", -0.1, "must be at least 0.0, got -0.1"),
    ("radon-iterations", 0, "must be at least 1, got 0"),
    ("radon-iterations", 5, "must be at most 4, got 5"),
    ("hospitals", 1, "must be at least 2, got 1"),
    ("quorum", 0.0, "must be more than 0.0, got 0.0"),
    ("quorum", 2, "must be at most 1.0, got 2.0"),
    ("leg-timeout", 0.0, "must be more than 0.0, got 0.0"),
    ("leg-timeout", float("inf"), "must be a finite number, got inf"),
    ("start-timeout", -1, "must be more than 0.0, got -1.0"),
    ("start-timeout", float("inf"), "must be a finite number, got inf"),
    ("seed", -1, "must be at least 0, got -1"),
    ("seed", 2**63, "must be less than 9223372036854775808, got 9223372036854775808"),
    ("run-dir", 7, "must be text, got 7"),
    ("model", None, "must be text, got None"),
    ("model-options", "[1]", "must be a JSON object like {}, got '[1]'"),
    ("model-options", "{", "must be a JSON object, got '{'"),
    ("loss", "mse", "must be one of 'cross-entropy' or 'hinge', got 'mse'"),
    ("optimizer", "rmsprop", "must be one of 'sgd' or 'adam', got 'rmsprop'"),
    ("optimizer-state", "lost", "must be one of 'reset' or 'kept', got 'lost'"),
    ("learning-rate", 0.0, "must be more than 0.0, got 0.0"),
    ("learning-rate", "0.1", "must be a finite number, got '0.1'"),
    ("learning-rate", float("inf"), "must be a finite number, got inf"),
    ("decay-every", -1, "must be at least 0, got -1"),
    ("decay-factor", 0.0, "must be more than 0.0, got 0.0"),
    ("decay-factor", 1.5, "must be at most 1.0, got 1.5"),
    ("momentum", 1, "must be less than 1.0, got 1.0"),
    ("weight-decay", -0.1, "must be at least 0.0, got -0.1"),
    ("batch-size", -1, "must be at least 0, got -1"),
    ("precision", "float16", "must be one of 'float32' or 'float64', got 'float16'"),
    ("dataset", 3, "must be text, got 3"),
    ("data-dir", ["a"], "must be text, got ['a']"),
    ("image-size", 1025, "must be at most 1024, got 1025"),
    ("image-mode", "colour", "must be one of 'auto', 'grey' or 'rgb', got 'colour'"),
    ("test-fraction", 0.0, "must be more than 0.0, got 0.0"),
    ("test-fraction", 1, "must be less than 1.0, got 1.0"),
    ("split", "random", "must be one of 'equal', "),
    ("examples", 0, "must be at least 1, got 0"),
    ("held-out", -1, "must be at least 0, got -1"),
    ("classes-per-hospital", 0, "must be at least 1, got 0"),
    ("skew-small-fraction", 1.0, "must be less than 1.0, got 1.0"),
    ("skew-min-examples", 0, "must be at least 1, got 0"),
    ("device", "tpu", "must be one of 'cpu', 'cuda', 'mps' or 'auto', got 'tpu'"),
    ("threads", 0, "must be at least 1, got 0"),
    ("threads", 257, "must be at most 256, got 257"),
]


@pytest.mark.parametrize(("key", "value", "rule"), WRONG, ids=lambda value: repr(value)[:30])
def test_a_wrong_value_is_named_with_its_key_and_source(key: str, value: Any, rule: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.from_run_config({key: value}, source="my file")

    message = str(refused.value)
    assert message.startswith(f"{key} {rule}")
    assert message.endswith(" (my file)")
    assert repr(value if not isinstance(value, int) else type(value)(value)) in message or (
        repr(float(value)) in message
    )
    assert "\n" not in message


@pytest.mark.parametrize("key", sorted(Settings.defaults()))
def test_every_setting_refuses_what_no_setting_can_be(key: str) -> None:
    for value in (None, [], {}, object()):
        with pytest.raises(SettingsError, match=rf"^{key} must be .* \(here\)$"):
            Settings.from_run_config({key: value}, source="here")


@pytest.mark.parametrize("key", ["rouns", "batch_size", "", "Rounds", "proximal_mu"])
def test_an_unknown_key_is_named(key: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{key} is not a setting \(here\)$"):
        Settings.from_run_config({key: 1}, source="here")


NOT_TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"schedule": "random", "daisy_period": 0}, r"needs daisy-period ≤ .* got 0 and 5"),
    ({"schedule": "random", "daisy_period": 6}, r"needs daisy-period ≤ .* got 6 and 5"),
    ({"schedule": "random", "aggregation_period": 0}, r"needs daisy-period ≤ .* got 1 and 0"),
    ({"aggregator": "median", "weighting": "examples"}, r"weighting = examples has no effect"),
    ({"aggregator": "krum", "weighting": "chain-examples"}, r"aggregator = krum: set weighting"),
    ({"aggregator": "qfedavg"}, r"qfedavg .* needs daisy-period = 0 and fraction = 1, got 1 and"),
    ({"aggregator": "qfedavg", "daisy_period": 0, "fraction": 0.5}, r"got 0 and 0\.5"),
    ({"optimizer": "adam", "momentum": 0.9}, r"momentum belongs to optimizer = sgd"),
]


@pytest.mark.parametrize(("changes", "message"), NOT_TOGETHER)
def test_settings_that_do_not_go_together_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=rf"{message}.* \(here\)$") as refused:
        parse(**changes)
    assert "\n" not in str(refused.value)


periods = st.integers(0, 7)


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "daisy_period": periods,
            "aggregation_period": periods,
            "schedule": st.sampled_from(["periodic", "random"]),
        }
    )
)
def test_what_the_settings_accept_the_schedule_accepts(changes: dict[str, Any]) -> None:
    try:
        chosen = parse(**changes).algorithm
    except SettingsError:
        return
    legs = chosen.to_schedule(bytes(32)).legs
    assert sum(leg.local_rounds for leg in legs) == chosen.rounds


# --- preflight: what only data, network and aggregator can tell -----------------------------------


@pytest.fixture(autouse=True)
def _nothing_cached() -> Iterator[None]:
    yield
    load_dataset.cache_clear()
    load_partitions.cache_clear()


def tiny(**changes: Any) -> Settings:
    renamed = {key.replace("_", "-"): value for key, value in changes.items()}
    return Settings.from_run_config(TINY | renamed, source="test")


def test_preflight_lets_a_sound_run_start_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    preflight(tiny())
    preflight(tiny(run_dir=str(tmp_path / "new" / "run")))

    assert list(tmp_path.iterdir()) == []


IMPOSSIBLE: list[tuple[dict[str, Any], type[ValueError], str]] = [
    ({"dataset": "brest-cancer"}, DataError, "unknown data set 'brest-cancer'"),
    ({"dataset": "csv", "data_dir": "/nowhere/x.csv"}, DataError, "nowhere"),
    ({"examples": 500}, DataError, "lower hospitals, examples or held-out"),
    ({"hospitals": 600}, DataError, "lower hospitals, examples or held-out"),
    ({"split": "natural"}, DataError, "natural needs each example's hospital"),
    ({"split": "pathological"}, DataError, "examples must be a multiple"),
    ({"model": "mpl"}, ModelError, "did you mean 'mlp'"),
    ({"model": "mnist-cnn", "model_options": "{}"}, ModelError, "needs images"),
    ({"model_options": '{"hiden": [3]}'}, ModelError, "'hiden' is not an option of mlp"),
    ({"loss": "hinge"}, ModelError, "loss = hinge needs two classes and one output"),
    (
        {"aggregator": "krum", "krum-malicious": 2},
        SettingsError,
        "only among 7 or more; a leg has 6",
    ),
    ({"aggregator": "multi-krum", "krum-malicious": 2}, SettingsError, "only among 7 or more"),
    ({"aggregator": "bulyan", "krum-malicious": 1}, SettingsError, "only among 7 or more"),
    ({"aggregator": "krum", "fraction": 0.3}, SettingsError, "a leg has 2"),
    # 30·5 + 5 + 5·2 + 2 parameters, and two more hospitals than that.
    ({"aggregator": "radon"}, SettingsError, r"at least 169 hospitals for a model of 167 train"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), IMPOSSIBLE)
def test_preflight_says_in_one_line_what_can_never_work(
    changes: dict[str, Any], kind: type[ValueError], message: str
) -> None:
    with pytest.raises(kind, match=message) as refused:
        preflight(tiny(**changes))
    assert "\n" not in str(refused.value)
    # `feddc simulate` turns exactly these into a message and exit code 2.
    assert isinstance(refused.value, simulate.INPUT_ERRORS)


def test_preflight_lets_a_radon_point_with_enough_hospitals_start() -> None:
    linear = {"model": "linear", "model_options": "{}", "aggregator": "radon"}

    # 30·2 + 2 parameters; with two hospitals more there is a Radon point.
    preflight(tiny(**linear, hospitals=64, examples=3, held_out=0))
    with pytest.raises(SettingsError, match="at least 64 hospitals"):
        preflight(tiny(**linear, hospitals=63, examples=3, held_out=0))


def test_preflight_refuses_a_hospital_without_training_examples(tmp_path: Path) -> None:
    lines = ["clinic,patient,x,label"]
    # West has one patient with four examples: whatever is held out takes them all.
    lines += [f"east,{n},{n},{n % 2}" for n in range(20)]
    lines += [f"west,99,{n},{n % 2}" for n in range(4)]
    (tmp_path / "study.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = Settings.from_run_config(
        {
            "dataset": "csv",
            "data-dir": str(tmp_path / "study.csv"),
            "group-column": "patient",
            "hospital-column": "clinic",
            "split": "natural",
            "held-out": 2,
            "hospitals": 2,
            "test-fraction": 0.1,
        },
        source="test",
    )
    with pytest.raises(DataError, match="west has no training examples"):
        preflight(settings)


def test_preflight_refuses_names_that_no_roster_can_hold(tmp_path: Path) -> None:
    lines = ["clinic,x,label"]
    lines += [f"{clinic},{n},{n % 2}" for n in range(20) for clinic in ("Mainz/2", "Mainz")]
    (tmp_path / "study.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    natural = {"dataset": "csv", "data_dir": str(tmp_path / "study.csv"), "split": "natural"}

    with pytest.raises(DataError, match="names cannot be on a roster") as refused:
        preflight(tiny(**natural, hospital_column="clinic", hospitals=2))
    assert "\n" not in str(refused.value)


def test_preflight_refuses_a_folder_that_holds_a_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")

    with pytest.raises(SettingsError, match=r"run-dir .* already holds a run: choose another$"):
        preflight(tiny(run_dir=str(tmp_path)))
