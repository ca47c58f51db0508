"""ε as scheduled: from public settings, in metrics.jsonl, on the pages and in the closing table."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy.optimize import brentq
from scipy.stats import norm

from operation.runs.history import RunHistory
from protocol.randomness import derive_seed
from server_app.config.noise_target import scheduled_epsilon
from server_app.config.run_config import Settings
from server_app.experiment.progress import closing_table
from server_app.pages.run_view import RunRecord, coordinator_view, public_view
from tests.conftest import TINY
from tests.server_app.run_files import events

SEED = derive_seed(3, "route")
PRIVATE: dict[str, Any] = TINY | {
    "sealed": False,
    "batch-size": 0,
    "privacy-unit": "patient",
    "nominal-patients": 8,
    "noise-multiplier": 5.0,
}


def settings(**changed: Any) -> Settings:
    changed = {key.replace("_", "-"): value for key, value in changed.items()}
    return Settings.from_run_config(PRIVATE | changed, source="test")


def exact(mu: float, delta: float = 1e-5) -> float:
    """Return ε of a Gaussian by scipy's distribution; independent of the accountant."""

    def excess(eps: float) -> float:
        above = math.exp(eps + norm.logcdf(-mu / 2 - eps / mu))
        return float(norm.cdf(mu / 2 - eps / mu) - above - delta)

    return float(brentq(excess, 0, 200, xtol=1e-12))


def test_epsilon_grows_with_the_rounds_that_are_noised() -> None:
    """Twelve rounds, one per leg, an average after every fourth."""
    spent = scheduled_epsilon(settings(), SEED)
    assert spent == pytest.approx({n: exact(math.sqrt(n) / 5) for n in range(1, 13)}, rel=1e-6)


def test_an_average_with_cancelled_noise_costs_its_own() -> None:
    spent = scheduled_epsilon(
        settings(averaging="secure", sealed=True, average_noise_multiplier=2.0), SEED
    )
    # Leg 4 averages: three rounds were noised, and the fourth leaves in the sum only.
    assert spent[3] == pytest.approx(exact(math.sqrt(3) / 5), rel=1e-6)
    assert spent[4] == pytest.approx(exact(math.sqrt(3 / 25 + 1 / 4)), rel=1e-6)


def test_a_long_schedule_has_a_few_points_and_its_end() -> None:
    spent = scheduled_epsilon(settings(rounds=1000, aggregation_period=10), SEED)
    assert len(spent) == 25
    assert max(spent) == 1000


@pytest.mark.parametrize("changed", [{"privacy_unit": "none"}, {}], ids=["no unit", "no noise"])
def test_without_noise_there_is_no_epsilon(changed: dict[str, Any]) -> None:
    assert scheduled_epsilon(settings(noise_multiplier=0.0, **changed), SEED) == {}


def test_a_private_run_shows_what_was_scheduled_and_says_so(run_tiny: Any, tmp_path: Path) -> None:
    done = run_tiny(**{key: value for key, value in PRIVATE.items() if key not in TINY})
    folder = Path(done.summary["run_dir"])

    lines = events(folder, "privacy")
    assert [line["leg"] for line in lines] == list(range(1, 13))
    assert {(line["basis"], line["delta"]) for line in lines} == {("as scheduled", 1e-5)}
    final = scheduled_epsilon(done.settings, SEED)[12]
    assert done.summary["scheduled_epsilon"] == lines[-1]["epsilon"] == pytest.approx(final)
    assert "hospital" not in json.dumps(lines)

    record = RunRecord("run", RunHistory.read(folder), {}, done.summary)
    for view in (coordinator_view(record), public_view(record)):
        fact = dict(view["facts"])["privacy, as scheduled"]
        assert fact.startswith(f"ε = {final:.3g} (δ = 1e-05) for a hospital that trained")
        (chart,) = (c for c in view["charts"] if c["title"] == "Privacy, as scheduled")
        assert chart["series"][0]["x"] == list(range(1, 13))
    text = io.StringIO()
    Console(file=text, width=200).print(closing_table(done.summary, folder))
    assert f"ε = {final:.3g} (δ = 1e-05) as scheduled" in text.getvalue()


def test_a_run_without_noise_says_nothing_of_epsilon(run_tiny: Any) -> None:
    done = run_tiny(rounds=1, sealed=False)
    folder = Path(done.summary["run_dir"])
    assert events(folder, "privacy") == []
    assert done.summary["scheduled_epsilon"] is None
    text = io.StringIO()
    Console(file=text, width=200).print(closing_table(done.summary, folder))
    assert "ε" not in text.getvalue()
