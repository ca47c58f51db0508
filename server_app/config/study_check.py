"""A study's settings tried out before an experiment is made, in a process that ends with it.

What network, test data and aggregator say needs torch, for which whoever starts an experiment and
then follows it for hours has no other use.

    python -m server_app.config.study_check    (question on standard input, answer on its output)
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from operation.config import Scalar, SettingsError


def check_apart(values: Mapping[str, Scalar], hospitals: int, first_model: Path | None) -> None:
    """Build network and aggregator as the run will; SettingsError says what to change."""
    question = {
        "values": dict(values),
        "hospitals": hospitals,
        "first": first_model and str(first_model),
    }
    done = subprocess.run(  # noqa: S603 (our own interpreter and module)
        [sys.executable, "-m", __name__],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        sys.stderr.write(done.stderr)
        raise SettingsError(f"the settings could not be tried out: exit code {done.returncode}")
    if problem := json.loads(lines[-1])["problem"]:
        raise SettingsError(problem)


def main() -> None:
    """Answer one question."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed
    from learning.data import DataError
    from learning.models import ModelError
    from server_app.experiment.experiment_folder import parse

    from .study_task import check

    question = json.load(sys.stdin)
    settings, task = parse(question["values"], hospitals=question["hospitals"])
    problem = ""
    try:
        check(settings, task, question["first"] and Path(question["first"]))
    except (DataError, ModelError, SettingsError) as error:
        problem = str(error)
    answers.write(json.dumps({"problem": problem}) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
