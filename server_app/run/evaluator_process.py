"""Evaluation in a process of its own, so that the ServerApp needs no torch.

A ServerApp runs as long as its experiment, and torch would take most of its memory. The process
makes the first model; it ends then, unless there are test data.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from operation import files
from protocol.model_bytes import ModelState

from .json_file import write_json


class EvaluatorError(RuntimeError):
    """The evaluator's process failed; the message is its own last line."""


@dataclass(frozen=True)
class Evaluation:
    """A model's metrics on the test data; as `learning.metrics.Metrics`, without torch."""

    loss: float
    accuracy: float
    balanced_accuracy: float


class EvaluatorProcess:
    """Gets the first model and evaluations from another process.

    That process reads its settings in the experiment's `folder`; models are passed as files.
    """

    def __init__(self, folder: Path, hospitals: int) -> None:
        self._files = folder / "evaluator"
        self._files.mkdir(mode=0o700, exist_ok=True)
        self._log = folder / "evaluator.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                [
                    sys.executable,
                    "-m",
                    "server_app.run.evaluator_worker",
                    str(folder),
                    str(hospitals),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        first = self._files / "first"
        facts = self._ask(first=str(first))
        self.shape, self.classes = tuple(facts["shape"]), int(facts["classes"])
        model = ModelState.from_bytes(first.read_bytes())
        # In the network's order, which serialisation does not keep.
        self.first_model = ModelState(
            {name: model.parameters[name] for name in facts["parameters"]},
            {name: model.buffers[name] for name in facts["buffers"]},
        )
        # As scheduled, after some legs: computed there, because the accountant needs torch.
        self.epsilon = {int(leg): float(value) for leg, value in facts["epsilon"].items()}
        self._has_test = bool(facts["has_test"])
        if not self._has_test:
            self.close()

    def evaluate(self, model: ModelState) -> Evaluation | None:
        """Return the model's metrics, or None without test data."""
        if not self._has_test:
            return None
        return Evaluation(**self._ask(evaluate=self._passed(model)))

    def save_figures(self, model: ModelState, file: Path) -> None:
        """Write all figures of the final model on the test data, if there are any.

        The export needs them: the seed that chose the test data of a rehearsal is deleted.
        """
        if not self._has_test:
            return
        if figures := self._ask(figures=self._passed(model)):
            write_json(file, figures)

    def close(self) -> None:
        """End the process and remove the files."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()
        for path in self._files.glob("*"):
            path.unlink()

    def __enter__(self) -> "EvaluatorProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _passed(self, model: ModelState) -> str:
        path = self._files / "model"
        files.replace(path, model.to_bytes(), mode=0o600)
        return str(path)

    def _ask(self, **request: str) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 (pipes, see above)
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise EvaluatorError(
                f"the evaluator ended with code {self._process.wait()}; see {self._log}"
            )
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise EvaluatorError(str(reply["error"]))
        return reply
