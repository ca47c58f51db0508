"""Check of a study's settings before an experiment is created, in a process of its own.

The check of network, test data and aggregator needs torch. The command that starts an experiment
and then follows it for hours has no other use for it.

    python -m server_app.config.study_check    (request on standard input, reply on its output)
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from operation.config import Scalar, SettingsError
from operation.terminal import echo
from protocol.codebook import Codebook


def check_in_subprocess(
    values: Mapping[str, Scalar],
    hospitals: int,
    first_model: Path | None,
    codebook: Codebook | None = None,
) -> dict[str, Scalar]:
    """Build network and aggregator as the run will; SettingsError says what to change.

    Returns the settings that are computed from others: the noise for a target.
    """
    request = {
        "values": dict(values),
        "hospitals": hospitals,
        "first": first_model and str(first_model),
        "codebook": codebook and codebook.content.decode(),
    }
    done = subprocess.run(  # noqa: S603 (our own interpreter and module)
        [sys.executable, "-m", __name__],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        echo(done.stderr, err=True)
        raise SettingsError(f"the settings could not be checked: exit code {done.returncode}")
    reply = json.loads(lines[-1])
    if reply["problem"]:
        raise SettingsError(reply["problem"])
    computed: dict[str, Scalar] = reply["computed"]
    return computed


def main() -> None:
    """Read one request and write one reply."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # anything else that is printed
    from learning.data import DataError
    from learning.models import ModelError
    from server_app.experiment.experiment_folder import parse

    from .noise_target import noise_for_target
    from .study_task import check

    request = json.load(sys.stdin)
    settings, task = parse(request["values"], hospitals=request["hospitals"])
    codebook = request["codebook"] and Codebook.from_content(request["codebook"].encode())
    problem, computed = "", {}
    try:
        check(settings, task, request["first"] and Path(request["first"]), codebook)
        computed = noise_for_target(settings)
    except (DataError, ModelError, SettingsError) as error:
        problem = str(error)
    replies.write(json.dumps({"problem": problem, "computed": computed}) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
