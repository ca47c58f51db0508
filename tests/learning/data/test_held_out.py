"""Who is held out stays held out, whatever else changes in the data."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.data import DataError
from learning.data.partition.groups import unite
from learning.data.partition.held_out import HeldOut

KEY = bytes(range(32))
patients = st.lists(st.text("abc", min_size=1, max_size=4).map("patient {}".format), min_size=1)


def held(apart: HeldOut, whose: list[str], fraction: float = 0.3) -> set[str]:
    """Return the patients that are held out; all rows of each are on one side."""
    try:
        pool, test = apart.set_apart(whose, unite(whose), fraction)
    except DataError:
        return set(whose)  # all of a few
    assert sorted([*pool, *test]) == list(range(len(whose)))
    out = {whose[row] for row in test}
    assert out.isdisjoint({whose[row] for row in pool})
    return out


@given(patients, patients, st.randoms(use_true_random=False))
def test_added_removed_and_reordered_rows_move_no_patient(
    before: list[str], added: list[str], random: Random
) -> None:
    """Even without a record: the hash alone decides the same for a patient."""
    after = [*before, *added]
    random.shuffle(after)
    first, second = held(HeldOut(KEY), before), held(HeldOut(KEY), after)
    assert first & set(before) == second & set(before)
    assert held(HeldOut(KEY), list(set(after) - {before[0]}) or before) <= second


@given(patients, patients, st.floats(0.01, 0.99))
def test_what_was_decided_is_recorded_and_stays_with_another_fraction(
    before: list[str], added: list[str], fraction: float
) -> None:
    apart = HeldOut(KEY)
    first = held(apart, before)
    again = HeldOut(KEY, dict(apart.recorded))
    assert held(again, [*added, *before], fraction) & set(before) == first


def test_new_examples_of_a_known_group_go_where_the_group_is() -> None:
    apart = HeldOut(KEY)
    one = [f"image {number}" for number in range(200)]
    pool, test = apart.set_apart(one, None, 0.5)
    copies = [f"{name} (copy)" for name in one]
    both = [*one, *copies]
    groups = np.tile(np.arange(200), 2)
    again, held_out = HeldOut(KEY, apart.recorded).set_apart(both, groups, 0.5)
    assert again.tolist() == [*pool, *(pool + 200)]
    assert held_out.tolist() == [*test, *(test + 200)]


def test_the_fraction_is_kept_on_average_and_the_key_decides() -> None:
    many = [f"patient {number}" for number in range(10_000)]
    shares = [len(HeldOut(bytes([k]) * 32).set_apart(many, None, 0.2)[1]) for k in range(3)]
    assert all(abs(share - 2_000) < 5 * 40 for share in shares)  # 5 standard deviations
    assert len(set(shares)) > 1
    # Large groups are held out as often as single patients.
    groups = np.arange(10_000) // 10
    assert abs(len(HeldOut(KEY).set_apart(many, groups, 0.2)[1]) - 2_000) < 5 * 127


def test_the_record_does_not_show_who_it_is_about() -> None:
    apart = HeldOut(KEY)
    apart.set_apart(["patient 4711", "patient 4712"], None, 0.01)
    other = HeldOut(bytes(32))
    other.set_apart(["patient 4711", "patient 4712"], None, 0.01)
    assert apart.recorded.keys().isdisjoint(other.recorded)


def test_nothing_left_to_train_on_is_refused() -> None:
    with pytest.raises(DataError, match="all 1 examples are held out"):
        HeldOut(KEY).set_apart(["patient 1"], None, 0.999999)
