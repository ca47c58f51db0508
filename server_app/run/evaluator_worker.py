"""The process that has torch: makes an experiment's first model, and evaluates its aggregates.

    python -m server_app.run.evaluator_worker EXPERIMENT-FOLDER HOSPITALS

One question a line on standard input, one answer a line on standard output; ends with its input.
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
from server_app.config.study_task import load_task
from server_app.experiment import first_model
from server_app.experiment.experiment_folder import Experiment

from .evaluator import Evaluator


def main() -> None:
    """Answer until there are no more questions."""
    # Answers have the output to themselves: whatever else is printed goes to the log.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    folder = Path(sys.argv[1])
    experiment = Experiment(folder.name, folder)
    try:
        settings, task_settings = experiment.settings(int(sys.argv[2]))
        secrets = experiment.secrets()
        task, test = load_task(task_settings, seed=secrets.rehearsal or 0)
        seed = shared_init_seed(secrets.training_seed)
        evaluator = Evaluator(settings.training, task, test, seed=seed)
        first = evaluator.first_model
        if (given := folder / first_model.GIVEN).exists():
            first = first_model.read(given, first)
    except (DataError, ModelError, SettingsError) as error:
        say({"error": str(error)})
        return
    for line in sys.stdin:
        question = json.loads(line)
        if "first" in question:
            Path(question["first"]).write_bytes(first.to_bytes())
            say(
                {
                    "shape": list(task.shape),
                    "classes": task.classes,
                    "parameters": list(first.parameters),
                    "buffers": list(first.buffers),
                    "has_test": test is not None and len(test) > 0,
                }
            )
        else:
            model = ModelState.from_bytes(Path(question["evaluate"]).read_bytes())
            figures = evaluator.figures(model)
            assert figures is not None  # noqa: S101 (asked only where there are test data)
            say(
                {
                    "loss": figures.loss,
                    "accuracy": figures.accuracy,
                    "balanced_accuracy": figures.balanced_accuracy,
                }
            )


if __name__ == "__main__":
    main()
