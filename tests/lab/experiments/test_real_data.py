"""The experiments on real data: that every split they need can be made of it."""

import os
from pathlib import Path

import numpy as np
import pytest

from lab.experiments import load_experiment
from lab.sweep import Request, SweepPlan
from learning.local_data import load_dataset, load_partitions

DATA = os.environ.get("FEDDC_DATA", "")


@pytest.mark.skipif(
    not (Path(DATA) / "brain_mri").is_dir(),
    reason="needs the MRI scans: set FEDDC_DATA to the folder above brain_mri/",
)
@pytest.mark.parametrize("name", ["mri", "mri-skewed"])
def test_every_seed_has_its_mri_splits_in_the_papers_sizes(name: str) -> None:
    plan = SweepPlan(Request(load_experiment(name), "laptop"))
    assert len(plan.seeds) >= 10
    for variant in dict.fromkeys(cell.variant.label for cell in plan.cells):
        cell = next(cell for cell in plan.cells if cell.variant.label == variant)
        for seed in plan.seeds:
            for trial in (plan.candidate(cell, seed, 0.1), plan.final(cell, seed, 0.1)):
                local = trial.settings.local
                partitions = load_partitions(local, 25, seed)
                assert sum(len(partition.train) for partition in partitions) == 25 * local.examples
                assert (
                    sum(len(partition.held_out) for partition in partitions) == 25 * local.held_out
                )
            dataset = load_dataset(local, seed)
            assert len(dataset.test) == 53
            if "near-duplicates" in variant:
                assert dataset.train.groups is not None
                assert dataset.test.groups is not None
                assert not np.intersect1d(dataset.train.groups, dataset.test.groups).size
