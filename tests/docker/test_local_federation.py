"""The federation of `make federation` learns, and says so if it does not; no engine is needed."""

import pytest

from docker.local.accuracies import MINIMUM, Accuracies, TooLow
from docker.local.federation import EXAMPLES, HOSPITALS, SETTINGS, TEST_FRACTION
from lab.engine.run import run
from server_app.config.run_config import Settings


@pytest.mark.parametrize("seed", range(8))
def test_its_settings_learn_whatever_the_seed(seed: int) -> None:
    held_out = round(EXAMPLES * TEST_FRACTION)
    simulated = {
        "dataset": "digits",
        "hospitals": len(HOSPITALS),
        "examples": EXAMPLES - held_out,
        "held-out": held_out,
        "seed": seed,
    }
    task = {"input-shape", "classes"}
    shared = {key: value for key, value in SETTINGS.items() if key not in task}
    settings = Settings.from_run_config(simulated | shared, source="test")
    history = run(settings, backend="batched", evaluate_held_out=True).history
    assert history.held_out is not None
    assert history.held_out.accuracy >= MINIMUM


def at_each(*values: float) -> dict[str, float]:
    return dict(zip(HOSPITALS, values, strict=True))


def test_an_aggregate_at_chance_is_an_error() -> None:
    chance = Accuracies(at_each(0.8, 0.8, 0.8), at_each(0.167, 0.083, 0.042))
    with pytest.raises(TooLow, match=r"accuracy is 9\.7 %, expected at least 80\.0 %"):
        chance.check()
    Accuracies(at_each(0.1, 0.1, 0.1), at_each(0.9, 0.8, 0.7)).check()


def test_the_table_has_both_models_at_every_hospital() -> None:
    table = Accuracies(at_each(0.819, 0.8, 0.848), at_each(0.943, 0.9524, 1.0)).table()
    heading, alone, aggregate = (line.split() for line in table.splitlines())
    assert heading[-4:] == [*HOSPITALS, "mean"]
    assert " ".join(alone).endswith("trained alone 81.9 % 80.0 % 84.8 % 82.2 %")
    assert " ".join(aggregate) == "FedDC's aggregate 94.3 % 95.2 % 100.0 % 96.5 %"
