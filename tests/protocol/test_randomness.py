"""Random streams: named, independent of every circumstance, and the same for ever."""

import hashlib
import subprocess
import sys
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocol.message_bytes import encode
from protocol.randomness import (
    TrainingStreams,
    derive_seed,
    draw_batches,
    shared_init_seed,
    stream,
    stream_seed,
)

SEED = bytes(range(32))
PROJECT = Path(__file__).resolve().parents[2]

names = st.tuples(
    st.binary(min_size=1, max_size=40),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12),
    st.lists(st.integers(0, 2**63), max_size=3).map(tuple),
)


def digest(seed: bytes, purpose: str, *counters: int) -> bytes:
    """Compute a stream's name by hand, as the format says."""
    name = purpose.encode()
    parts = [len(seed).to_bytes(2, "big"), seed, len(name).to_bytes(2, "big"), name]
    parts += [counter.to_bytes(8, "big") for counter in counters]
    return hashlib.sha256(b"".join(parts)).digest()


# --- the same for ever: a change here is a change of every published result -----------------------


def test_a_simulations_secrets_are_those_of_earlier_releases() -> None:
    assert derive_seed(0, "route").hex() == (
        "1205b82624148a394569d2ce28aa9038bc2aacdfe6156d306e6c60349afa87bf"
    )
    assert derive_seed(0, "training").hex() == (
        "ff4884d94e06697d06fcd9558fefdd2ccce5eaddaf6f07f3b3b6d92b0451b071"
    )
    assert derive_seed(2**63 - 1, "training").hex() == (
        "351519b90970426b9bf2a3ce5696d0e2149b327c2d659d22322a49e4d576cc84"
    )


def test_streams_are_those_of_earlier_releases() -> None:
    numbers = stream(SEED, "batch", 3, 17).integers(0, 2**32, 4)
    assert numbers.tolist() == [2077160255, 1591562092, 981505801, 1833092211]
    assert stream(SEED, "cohort", 1).random(2).tolist() == [0.08869872451372962, 0.9090717919677693]
    assert stream(SEED, "permutation", 2).permutation(8).tolist() == [4, 5, 1, 6, 0, 7, 2, 3]
    assert stream_seed(SEED, "dropout", 0, 0) == 5440138189676831123


def test_a_hospitals_streams_are_those_of_earlier_releases() -> None:
    streams = TrainingStreams(SEED, 2)
    assert streams.batch(5, 10, 4).tolist() == [9, 2, 1, 0]  # since version 2 of the streams
    assert streams.batch(6, 10, 4).tolist() == [2, 3, 6, 0]
    assert streams.dropout_seed(5) == 4410099380650153039
    assert streams.init_seed() == 8248502154816179271
    assert shared_init_seed(SEED) == 8494621233221803646


@given(names)
def test_a_stream_is_philox_keyed_by_the_names_digest(name: Any) -> None:
    seed, purpose, counters = name
    key = digest(seed, purpose, *counters)

    expected = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "big")))
    assert stream(seed, purpose, *counters).bytes(16) == expected.bytes(16)
    assert stream_seed(seed, purpose, *counters) == int.from_bytes(key[:8], "big") // 2


@given(st.integers(-(2**127), 2**127 - 1))
def test_a_secret_is_a_digest_of_the_public_seed(seed: int) -> None:
    assert derive_seed(seed, "route") == digest(
        seed.to_bytes(16, "big", signed=True), "feddc/route"
    )


def test_another_process_draws_the_same_numbers() -> None:
    code = (
        "from protocol.randomness import TrainingStreams, derive_seed, stream\n"
        "seed = derive_seed(7, 'training')\n"
        "print(stream(seed, 'schedule', 4).random())\n"
        "print(TrainingStreams(seed, 1).batch(3, 50, 6).tolist())\n"
        "print(TrainingStreams(seed, 1).dropout_seed(3))\n"
    )
    seed = derive_seed(7, "training")
    expected = [
        str(stream(seed, "schedule", 4).random()),
        str(TrainingStreams(seed, 1).batch(3, 50, 6).tolist()),
        str(TrainingStreams(seed, 1).dropout_seed(3)),
    ]
    environment = {"PYTHONPATH": str(PROJECT), "PYTHONHASHSEED": "12345", "OMP_NUM_THREADS": "1"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert other.stdout.splitlines() == expected


# --- independent of every circumstance ------------------------------------------------------------


def test_what_was_drawn_before_changes_nothing() -> None:
    rounds = [(position, round_) for position in range(3) for round_ in range(5)]

    def draw(order: list[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
        return {
            (position, round_): TrainingStreams(SEED, position).batch(round_, 20, 5).tolist()
            for position, round_ in order
        }

    forwards = draw(rounds)
    np.random.seed(0)
    stream(SEED, "batch", 0, 0).random(1000)
    assert draw(rounds[::-1]) == forwards
    assert draw(rounds[7:]) == {key: forwards[key] for key in rounds[7:]}


def test_drawing_does_not_touch_numpys_global_generator() -> None:
    np.random.seed(3)
    expected = np.random.random(4).tolist()
    np.random.seed(3)
    TrainingStreams(SEED, 0).batch(0, 10, 3)
    stream(SEED, "cohort", 1).random(10)
    assert np.random.random(4).tolist() == expected


# --- different for every name ---------------------------------------------------------------------


@settings(max_examples=300)
@given(names, names)
def test_two_names_never_share_a_stream(one: Any, other: Any) -> None:
    assume(one != other)
    draws = [stream(seed, purpose, *counters).bytes(16) for seed, purpose, counters in (one, other)]
    seeds = [stream_seed(seed, purpose, *counters) for seed, purpose, counters in (one, other)]
    assert draws[0] != draws[1]
    assert seeds[0] != seeds[1]


ALIKE: list[tuple[Any, Any]] = [
    ((b"ab", "c"), (b"a", "bc")),
    ((b"a", "b\0\0\0\0\0\0\0\1"), (b"a", "b", 1)),
    ((b"a", "b"), (b"a", "b", 0)),
    ((b"a", "b", 0), (b"a", "b", 0, 0)),
    ((b"a", "b", 1, 2), (b"a", "b", 2, 1)),
    ((b"a", "b", 258), (b"a", "b", 1, 2)),
    ((b"a\0", "b"), (b"a", "b")),
    ((b"", "\0\1a"), (b"\0\1a", "")),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_that_look_alike_are_different_streams(one: Any, other: Any) -> None:
    assert stream(*one).bytes(16) != stream(*other).bytes(16)


def test_hospitals_rounds_and_purposes_all_draw_differently() -> None:
    streams = [TrainingStreams(SEED, position) for position in range(20)]
    batches = [tuple(s.batch(round_, 10**4, 5)) for s in streams for round_ in range(50)]
    dropouts = [s.dropout_seed(round_) for s in streams for round_ in range(50)]
    inits = [s.init_seed() for s in streams]

    assert len(set(batches)) == 1000
    assert len({*dropouts, *inits, shared_init_seed(SEED)}) == 1000 + 20 + 1


def test_a_counter_is_never_negative() -> None:
    with pytest.raises(OverflowError):
        stream(SEED, "batch", -1)


# --- the two secrets ------------------------------------------------------------------------------


@given(st.integers(0, 2**63 - 1))
def test_a_route_seed_is_no_training_seed(seed: int) -> None:
    route, training = derive_seed(seed, "route"), derive_seed(seed, "training")

    assert len(route) == len(training) == 32
    assert route != training
    # Nor what a hospital could make of its training seed with the functions it has.
    reachable = {digest(training, purpose) for purpose in ("route", "feddc/route", "training", "")}
    assert route not in reachable


def test_no_request_holds_the_route_seed(run_tiny: Any) -> None:
    run = run_tiny(rounds=4, aggregation_period=2)
    route = derive_seed(run.settings.algorithm.seed, "route")
    training = derive_seed(run.settings.algorithm.seed, "training")
    sent = b"".join(encode(request) for _, request in run.grid.requests)

    assert training.hex().encode() in sent  # so the search would find a seed
    for secret in (route, route.hex().encode(), route.hex().upper().encode(), route[:8]):
        assert secret not in sent


def test_a_training_seed_is_not_printed() -> None:
    assert repr(TrainingStreams(SEED, 3)) == "TrainingStreams(position=3)"


# --- mini-batches ---------------------------------------------------------------------------------


def splitmix64(start: int, count: int) -> list[int]:
    """Compute SplitMix64 in Python's integers, as its authors print it."""
    numbers, state = [], start
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        numbers.append(z ^ (z >> 31))
    return numbers


def test_splitmix64_is_the_published_one() -> None:
    """The vectors of Java's SplittableRandom and of Vigna's splitmix64.c."""
    assert splitmix64(0, 3) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert splitmix64(1234567, 2) == [6457827717110365317, 3203168211198807973]


@given(st.integers(0, 200), st.integers(0, 10**6), st.integers(1, 300), st.floats(0, 1))
def test_a_batch_is_the_examples_with_the_smallest_marks(
    position: int, round_: int, examples: int, fraction: float
) -> None:
    size = max(1, round(fraction * examples))
    start = int.from_bytes(digest(SEED, "batch", position, round_)[:8], "big")
    marks = splitmix64(start, examples)
    expected = sorted(range(examples), key=marks.__getitem__)[:size]
    assert TrainingStreams(SEED, position).batch(round_, examples, size).tolist() == expected


def test_every_pair_of_examples_is_drawn_equally_often() -> None:
    rounds, examples, size = 6000, 6, 3
    pairs: Counter[tuple[int, int]] = Counter()
    drawn = draw_batches(SEED, [(1, t) for t in range(rounds)], examples, size)
    for batch in drawn.tolist():
        pairs.update(combinations(sorted(batch), 2))
    chance = size * (size - 1) / (examples * (examples - 1))
    deviation = (rounds * chance * (1 - chance)) ** 0.5
    assert len(pairs) == 15
    assert all(abs(count - rounds * chance) < 4.5 * deviation for count in pairs.values())
    # And every order of a batch: the first place is as uniform as the batch.
    first = Counter(drawn[:, 0].tolist())
    assert all(abs(count - rounds / examples) < 4.5 * deviation for count in first.values())


@given(st.data())
def test_a_batch_has_no_example_twice(data: st.DataObject) -> None:
    examples = data.draw(st.integers(1, 60))
    size = data.draw(st.integers(1, examples))
    round_ = data.draw(st.integers(0, 10**6))

    batch = TrainingStreams(SEED, 4).batch(round_, examples, size)

    assert batch.dtype == np.int64
    assert len(batch) == len(set(batch.tolist())) == size
    assert batch.min() >= 0
    assert batch.max() < examples


def test_every_example_is_drawn_equally_often() -> None:
    rounds, examples, size = 4000, 10, 3
    drawn = Counter(
        row for t in range(rounds) for row in TrainingStreams(SEED, 0).batch(t, examples, size)
    )
    expected = rounds * size / examples
    deviation = (rounds * 0.3 * 0.7) ** 0.5
    assert set(drawn) == set(range(examples))
    assert all(abs(count - expected) < 4.5 * deviation for count in drawn.values())
