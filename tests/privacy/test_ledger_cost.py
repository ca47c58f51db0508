"""What a leg's ε costs to compute: counted in compositions, not in seconds."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from client_app.state.privacy.ledger import PrivacyLedger
from learning.privacy import Release, accountant, epsilon, sampled
from protocol.messages import Trained
from tests.privacy.ledger_site import Site

POISSON = {"batch-size": 4, "noise-multiplier": 30.0}
# Of earlier experiments: full batches once, Poisson batches with five kinds of noise.
HISTORY = [(50.0, 1.0, 20), *((20.0 + kind, 0.25, 40) for kind in range(5))]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the calls that take a tenth of a second each with long histories."""
    counts: Counter[str] = Counter()
    for name in ("self_compose", "compose"):
        original = getattr(PrivacyLossDistribution, name)

        def counted(*arguments: object, _name: str = name, _call: object = original) -> object:
            counts[_name] += 1
            return _call(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(PrivacyLossDistribution, name, counted)
    forget_compositions()
    yield counts
    forget_compositions()


def forget_compositions() -> None:
    for kept in (sampled._one, sampled._composed, accountant._sampled_epsilon):
        kept.cache_clear()


def site_with_history(folder: Path, max_epsilon: float) -> Site:
    site = Site(folder, **({"max-epsilon": max_epsilon} if max_epsilon else {}))
    ledger = PrivacyLedger(site.store, site.file)
    for number, spent in enumerate(HISTORY):
        ledger.charge(bytes([number] * 32), f"earlier-{number}", 1, [spent])
    return site


@pytest.mark.parametrize("max_epsilon", [0.0, 50.0], ids=["no limit", "max-epsilon"])
def test_a_leg_with_poisson_batches_composes_its_own_releases_and_nothing_else(
    tmp_path: Path, work: Counter[str], max_epsilon: float
) -> None:
    """Also where the budget is checked: what the check composed serves the audit log."""
    site = site_with_history(tmp_path, max_epsilon)
    site.agree(**POISSON)
    site.train(1)  # composes the history, once
    for number in (2, 3, 4):
        work.clear()
        assert isinstance(site.train(number), Trained)
        # The leg's own kind; then onto the history's distribution; then the full batches.
        assert work == {"self_compose": 1, "compose": 2}
    site.store.close()


def test_full_batches_need_no_distribution(tmp_path: Path, work: Counter[str]) -> None:
    site = Site(tmp_path, **{"max-epsilon": 50.0})
    site.agree()
    site.train(1)
    site.store.close()
    assert not work


def test_a_kept_composition_gives_the_same_epsilon_as_a_new_one() -> None:
    earlier = [Release(*spent) for spent in HISTORY]
    for count in range(2, 8, 2):
        step_by_step = epsilon([*earlier, Release(30.0, 0.5, count)], 1e-5)
    forget_compositions()
    at_once = epsilon([Release(30.0, 0.5, 6), *reversed(earlier)], 1e-5)

    assert math.isclose(step_by_step, at_once, rel_tol=1e-6)
