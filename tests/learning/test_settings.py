"""Settings groups: checked once, typed ever after; a wrong value is named with its source."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from learning.settings import LocalSettings, TrainingSettings
from operation.config import SettingsError, SettingsGroup

GROUPS = [TrainingSettings, LocalSettings]


def parse(**changes: Any) -> TrainingSettings:
    values = {key.replace("_", "-"): value for key, value in changes.items()}
    return TrainingSettings.parse(values, source="here")


@pytest.mark.parametrize("group", GROUPS)
def test_settings_left_out_have_their_defaults(group: type[SettingsGroup]) -> None:
    assert group.parse({}, source="here") == group()
    assert group.parse(group().as_config(), source="here") == group()
    assert tuple(group().as_config()) == group.key_names()


@pytest.mark.parametrize("group", GROUPS)
def test_every_setting_is_described_in_one_line(group: type[SettingsGroup]) -> None:
    for name, field in group.model_fields.items():
        assert field.description, name
        assert "\n" not in field.description
        assert field.description.strip() == field.description


def test_keys_have_hyphens_and_only_those_are_taken() -> None:
    assert parse(batch_size=3).batch_size == 3
    with pytest.raises(SettingsError, match=r"^batch_size is not a setting \(here\)$"):
        TrainingSettings.parse({"batch_size": 3}, source="here")


def test_whole_numbers_are_taken_for_floats_and_become_floats() -> None:
    settings = parse(learning_rate=1, weight_decay=0, proximal_mu=2)

    assert settings == parse(learning_rate=1.0, weight_decay=0.0, proximal_mu=2.0)
    assert [type(settings.learning_rate), type(settings.as_config()["weight-decay"])] == [
        float,
        float,
    ]


@pytest.mark.parametrize("key", ["learning-rate", "momentum", "decay-every", "batch-size"])
@pytest.mark.parametrize("value", [True, False, "1", None, [1], {"a": 1}])
def test_only_numbers_are_numbers(key: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^{key} must be a (whole|finite) number, got "):
        TrainingSettings.parse({key: value}, source="here")


@pytest.mark.parametrize("value", [10**400, -(10**400), float("inf"), float("-inf"), float("nan")])
def test_a_number_without_end_is_refused_like_any_other(value: float) -> None:
    with pytest.raises(SettingsError, match=r"^learning-rate must be .*, got .* \(here\)$"):
        parse(learning_rate=value)


@pytest.mark.parametrize("value", [1.0, 2.5, 1e300])
def test_a_fraction_is_no_whole_number(value: float) -> None:
    with pytest.raises(SettingsError, match=r"^batch-size must be a whole number, got "):
        parse(batch_size=value)


def test_only_the_first_problem_is_named() -> None:
    with pytest.raises(SettingsError) as refused:
        parse(momentum=2, learning_rate=-1)
    assert len(str(refused.value).splitlines()) == 1


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        parse().learning_rate = 1.0
    assert hash(parse()) == hash(parse(learning_rate=0.1))


# --- model options --------------------------------------------------------------------------------


def test_model_options_are_a_json_object() -> None:
    assert parse(model_options='{"hidden": [3, 4], "bias": true}').options == {
        "hidden": [3, 4],
        "bias": True,
    }
    assert parse().options == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"mlp"', "3", "{'a': 1}", "{}{}", "[" * 100_000]
)
def test_model_options_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^model-options must be a JSON object") as refused:
        parse(model_options=text)
    assert "\n" not in str(refused.value)


# --- the learning rate ----------------------------------------------------------------------------


@given(
    st.integers(0, 10_000),
    st.integers(1, 500),
    st.sampled_from([0.25, 0.5, 0.75, 1.0]),
)
def test_the_learning_rate_is_multiplied_once_in_every_period(
    round_: int, every: int, factor: float
) -> None:
    settings = parse(learning_rate=0.5, decay_every=every, decay_factor=factor)

    rate = Fraction(1, 2)
    for t in range(1, round_ + 1):
        if t % every == 0 and rate > Fraction(1, 10**30):
            rate *= Fraction(factor)
    if rate > Fraction(1, 10**30):
        assert settings.learning_rate_at(round_) == pytest.approx(float(rate), rel=1e-12)
    else:
        assert settings.learning_rate_at(round_) <= 1e-30


def test_without_decay_the_learning_rate_stays() -> None:
    assert {parse(learning_rate=0.3).learning_rate_at(t) for t in (0, 1, 10**9)} == {0.3}


def test_the_first_rounds_have_the_full_rate() -> None:
    settings = parse(learning_rate=0.8, decay_every=10, decay_factor=0.5)

    rates = [settings.learning_rate_at(t) for t in (0, 9, 10, 19, 20, 30)]

    assert rates == [0.8, 0.8, 0.4, 0.4, 0.2, 0.1]
