"""An experiment with real hospitals: the ServerApp starts or resumes it.

This process has no torch: see evaluator_process.py.
"""

import logging
import os
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from operation.log_lines import also_in
from server_app.experiment.experiment_folder import ExperimentFolder
from server_app.services.udp_notifier import find_notifier
from server_app.study.study_folder import FOLDER_VARIABLE, Study, StudyError
from strategies.session.sealed_study import SealedStudy
from strategies.session.storage.journal import DiskJournal

from .evaluator_process import EvaluatorProcess
from .notify import Notifier
from .recorder import Recorder
from .run_strategy import run_strategy


def run_experiment(grid: Grid, name: str) -> dict[str, Any]:
    """Run the study's experiment of this name to its end; return its summary."""
    study = Study.open(_study_folder())
    experiment = ExperimentFolder.open(study, name)
    # Flower keeps the ServerApp's output in its database; this log is easier to find.
    with experiment.locked(), also_in(experiment.log, logging.getLogger("flwr")):
        return _run(grid, study, experiment)


def _run(grid: Grid, study: Study, experiment: ExperimentFolder) -> dict[str, Any]:
    roster = experiment.roster()
    settings, _ = experiment.settings(len(roster.members))
    secrets, codebook = experiment.secrets(), experiment.codebook()
    with EvaluatorProcess(experiment.folder, len(roster.members)) as evaluator:
        recorder = Recorder(
            experiment.folder,
            settings,
            evaluator,
            resumable=True,
            epsilon=evaluator.epsilon,
            notifier=Notifier(study.file.notify, study=study.name, experiment=experiment.id),
            on_final=lambda final: evaluator.save_figures(final, experiment.figures_file),
        )
        summary = run_strategy(
            grid,
            settings,
            evaluator.shape,
            evaluator.classes,
            recorder,
            SealedStudy(
                roster,
                study.identity(),
                experiment=experiment.id,
                route_seed=secrets.route_seed,
                training_seed=secrets.training_seed,
                averaging="secure",
                codebook=None if codebook is None else codebook.digest,
                first_model_from_seed=not experiment.has_given_first_model,
                journal=DiskJournal(experiment.journal),
                newest_roster=study.roster,
                notifier=find_notifier(),
            ),
        )
    # Models, routes and seeds are confidential and no longer needed.
    experiment.delete_routes()
    return summary


def _study_folder() -> Path:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise StudyError(
            f"{FOLDER_VARIABLE} is not set: start the SuperLink with `feddc coordinator up`"
        )
    return Path(folder)
