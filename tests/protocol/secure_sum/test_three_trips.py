"""Three trips in memory: the sum over the survivors is their plain mean, or there is none."""

import math

import numpy as np
import pytest

from protocol.model_bytes import ModelState
from protocol.secure_sum.secure_leg import SecureSumError, most_colluding, threshold
from tests.protocol.secure_sum.members import form_for, make_members, make_model, run_trips

# Fifty members take seconds: they exchange 2,500 envelopes.
COUNTS = (3, 4, 10, pytest.param(50, marks=pytest.mark.slow))


def plain_mean(models: list[ModelState], weights: list[int]) -> dict[str, np.ndarray]:
    """The mean in exact arithmetic, where it matters: float64 of float32 numbers."""
    total = sum(weights)
    parts = [{**model.parameters, **model.buffers} for model in models]
    return {
        name: sum(
            weight * part[name].astype(np.float64)
            for weight, part in zip(weights, parts, strict=True)
        )
        / total
        for name in parts[0]
    }


def relative_error(mean: ModelState, expected: dict[str, np.ndarray]) -> float:
    found = {**mean.parameters, **mean.buffers}
    names = [name for name in expected if found[name].dtype.kind == "f"]
    difference = math.fsum(float(np.square(found[n] - expected[n]).sum()) for n in names)
    return math.sqrt(difference / math.fsum(float(np.square(expected[n]).sum()) for n in names))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("trip", [0, 1, 2])
@pytest.mark.parametrize("absent", ["none", "one", "as many as possible"])
def test_the_sum_over_the_survivors_is_their_plain_mean(count: int, trip: int, absent: str) -> None:
    members = make_members(count)
    models = {name: make_model(number) for number, name in enumerate(members)}
    form = form_for(models["h000"], count)
    most = count - threshold(count)
    number = {"none": 0, "one": min(1, most), "as many as possible": most}[absent]
    gone = list(members)[1 : 1 + number]
    dropped = [gone if place == trip else [] for place in range(3)]
    vectors = {name: form.encode(model) for name, model in models.items()}

    mean = run_trips(members, vectors, form, dropped=(dropped[0], dropped[1], dropped[2]))

    # Who drops out after its vector has arrived is in the sum.
    counted = [models[name] for name in members if trip > 0 or name not in gone]
    expected = plain_mean(counted, [1] * len(counted))
    assert mean.weight == len(counted)
    # The mean is rounded to float32 once: half of 2⁻²³ at most.
    assert relative_error(mean.model, expected) < 1e-7
    assert mean.model.buffers["norm.batches"] == np.rint(expected["norm.batches"])
    norms = [
        math.sqrt(sum(float(np.square(a.astype(float)).sum()) for a in m.parameters.values()))
        for m in counted
    ]
    assert mean.mean_norm == pytest.approx(sum(norms) / len(norms), abs=1e-4)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("trip", [0, 1, 2])
def test_one_drop_out_too_many_fails_closed(count: int, trip: int) -> None:
    members = make_members(count)
    form = form_for(make_model(0), count)
    vectors = {name: form.encode(make_model(number)) for number, name in enumerate(members)}
    gone = list(members)[: count - threshold(count) + 1]
    dropped = [gone if place == trip else [] for place in range(3)]

    with pytest.raises(SecureSumError, match="needed"):
        run_trips(members, vectors, form, dropped=(dropped[0], dropped[1], dropped[2]))


def test_models_are_weighted_by_examples_that_stay_secret() -> None:
    members = make_members(10)
    weights = [8, 65535, 1, 300, 20, 20, 1000, 7, 64, 28]
    models = [make_model(number) for number in range(10)]
    form = form_for(models[0], 10, weighted=True)
    vectors = {
        name: form.encode(model, weight=weight, figures={"loss": float(weight)})
        for name, model, weight in zip(members, models, weights, strict=True)
    }

    mean = run_trips(members, vectors, form)

    assert mean.weight == sum(weights)
    assert relative_error(mean.model, plain_mean(models, weights)) < 1e-7
    losses = [min(weight, 1024) for weight in weights]
    expected = np.average(losses, weights=weights)
    assert mean.figures == {"loss": pytest.approx(expected)}


@pytest.mark.parametrize("count", [3, 50])
def test_narrow_numbers_are_as_close_as_the_wire_type_rounds(count: int) -> None:
    members = make_members(count)
    models = [make_model(number) for number in range(count)]
    form = form_for(models[0], count, narrow=True)
    vectors = {name: form.encode(m) for name, m in zip(members, models, strict=True)}
    assert form.length == 4 * 44 + 8 * (4 + 2 + 8 + 4)

    mean = run_trips(members, vectors, form)

    expected = plain_mean(models, [1] * count)
    for name, values in mean.model.parameters.items():
        # float16 rounds a number near 1 by up to 2⁻¹¹ = 5e-4.
        np.testing.assert_allclose(values, expected[name], atol=4e-6)
    assert mean.model.buffers["norm.batches"] == np.rint(expected["norm.batches"])
    np.testing.assert_allclose(
        mean.model.buffers["norm.running_var"], expected["norm.running_var"], rtol=1e-7
    )


@pytest.mark.parametrize(
    ("members", "t", "c"),
    [
        (3, 3, 0),
        (4, 3, 1),
        (5, 4, 1),
        (6, 5, 1),
        (7, 5, 2),
        (10, 7, 3),
        (50, 34, 16),
        (100, 67, 33),
    ],
)
def test_thresholds_follow_the_formulas(members: int, t: int, c: int) -> None:
    assert (threshold(members), most_colluding(members)) == (t, c)
    # Two survivor sets, both signed by t: they share more signers than may collude.
    assert 2 * t - members > c
