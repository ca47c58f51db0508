"""Sizes of a variant's test set and of the pool that its hospitals draw from."""

from dataclasses import dataclass

import numpy as np

from lab.experiments import Variant
from lab.sweep import SweepPlan
from learning.local_data import load_dataset
from server_app.config.run_config import Settings


@dataclass(frozen=True)
class Sizes:
    """Sizes of the test set and of the pool, which is all other examples."""

    test: int
    pool: int
    overlap: float
    """n_test / n_train of the corrected t-test; 0 where seeds have test sets of their own.

    The correction accounts for the overlap of two test sets, so n_train is everything outside the
    test set, even where hospitals train on a part of it.
    """


def sizes(plan: SweepPlan, variant: Variant) -> Sizes:
    """Count on the first seed; other seeds differ slightly where groups stay together."""
    local = Settings.from_run_config(plan.base(variant), source=variant.label).local
    first = load_dataset(local, plan.seeds[0])
    test, pool = len(first.test), len(first.train)
    drawn = plan.experiment.choose == "each-seed" and not np.array_equal(
        # A publisher's test set is the same for every seed.
        first.test.features,
        load_dataset(local, plan.seeds[0] + 1).test.features,
    )
    return Sizes(test, pool, round(test / pool, 4) if drawn else 0.0)
