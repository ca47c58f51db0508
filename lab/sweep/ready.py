"""Check a comparison before any training starts."""

import hashlib
from dataclasses import replace

import numpy as np

from lab.experiments.readiness import check_ready
from lab.sweep.plan import Request, SweepPlan
from lab.sweep.trial import Trial
from learning.local_data import load_dataset
from server_app.config.run_config import Settings, preflight

_ROWS = 256


def ready(request: Request) -> SweepPlan:
    """Return the plan of a request after checking its data, networks and aggregators.

    Raises an error with one line that says what to change.
    """
    plan = SweepPlan(request)
    check_ready(plan.experiment, request.preset)
    checked = set()
    for trial in _first_trials(plan):
        training = trial.settings.training
        # Everything that data, network and aggregator depend on; parsing checks the rest.
        network = (training.model, training.model_options, training.loss)
        kind = (trial.settings.local, network, trial.settings.algorithm)
        if kind not in checked:
            checked.add(kind)
            preflight(trial.settings)
    return SweepPlan(replace(request, data=data_digest(plan)))


def _first_trials(plan: SweepPlan) -> list[Trial]:
    """Return one trial of each kind, those with the same data one after another."""
    seed = plan.seeds[0]
    chosen = [plan.candidate(cell, seed, plan.rates(cell)[0]) for cell in plan.cells]
    reported = [plan.final(cell, seed, plan.rates(cell)[0]) for cell in plan.cells]
    trials = chosen + reported
    places = {trial.settings.local: place for place, trial in reversed(list(enumerate(trials)))}
    return sorted(trials, key=lambda trial: places[trial.settings.local])


def data_digest(plan: SweepPlan) -> str:
    """Return a digest of the examples; a file's date may change without its content."""
    variant = plan.experiment.variants_in(plan.request.preset)[0]
    settings = Settings.from_run_config(plan.base(variant), source=plan.experiment.name)
    dataset = load_dataset(settings.local, plan.seeds[0])
    digest = hashlib.sha256(repr(dataset.classes).encode())
    for part in (dataset.train, dataset.test):
        for array in (part.features, part.labels):
            digest.update(repr((array.shape, array.dtype)).encode())
            for rows in range(0, len(array), _ROWS):  # avoids a copy of the whole array
                digest.update(np.ascontiguousarray(array[rows : rows + _ROWS]).data)
    return digest.hexdigest()[:16]
