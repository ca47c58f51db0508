"""The evaluator's process, with torch: makes the first model and evaluates aggregates.

    python -m server_app.run.evaluator_worker EXPERIMENT-FOLDER HOSPITALS

Reads one request per line on standard input and writes one reply per line on standard output.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from learning.data import DataError
from learning.models import ModelError
from operation.config import SettingsError
from protocol.model_bytes import ModelState
from protocol.randomness import shared_init_seed
from server_app.config.noise_target import scheduled_epsilon
from server_app.config.study_task import load_task
from server_app.experiment import first_model
from server_app.experiment.experiment_folder import ExperimentFolder

from .evaluator import Evaluator


def main() -> None:
    """Reply until standard input ends."""
    # Standard output is for replies only: anything else that is printed goes to the log.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def reply(content: dict[str, Any]) -> None:
        replies.write(json.dumps(content) + "\n")
        replies.flush()

    folder = Path(sys.argv[1])
    experiment = ExperimentFolder(folder.name, folder)
    try:
        settings, task_settings = experiment.settings(int(sys.argv[2]))
        secrets = experiment.secrets()
        task, test = load_task(
            task_settings, seed=secrets.rehearsal or 0, codebook=experiment.codebook()
        )
        seed = shared_init_seed(secrets.training_seed)
        evaluator = Evaluator(settings.training, task, test, seed=seed)
        first = evaluator.first_model
        if (given := folder / first_model.GIVEN).exists():
            first = first_model.read(given, first)
    except (DataError, ModelError, SettingsError) as error:
        reply({"error": str(error)})
        return
    for line in sys.stdin:
        request = json.loads(line)
        if "first" in request:
            Path(request["first"]).write_bytes(first.to_bytes())
            reply(
                {
                    "shape": list(task.shape),
                    "classes": task.classes,
                    "parameters": list(first.parameters),
                    "buffers": list(first.buffers),
                    "has_test": test is not None and len(test) > 0,
                    "epsilon": scheduled_epsilon(settings, secrets.route_seed),
                }
            )
        elif "figures" in request:
            model = ModelState.from_bytes(Path(request["figures"]).read_bytes())
            figures = evaluator.figures(model, experiment.class_names(task.classes))
            reply({} if figures is None else figures.as_dict())
        else:
            model = ModelState.from_bytes(Path(request["evaluate"]).read_bytes())
            metrics = evaluator.evaluate(model)
            assert metrics is not None  # noqa: S101 (requested only with test data)
            reply(
                {
                    "loss": metrics.loss,
                    "accuracy": metrics.accuracy,
                    "balanced_accuracy": metrics.balanced_accuracy,
                }
            )


if __name__ == "__main__":
    main()
