"""What a run leaves behind: runs/<id>/ with settings, metrics, the model and a summary."""

import json
import math
import os
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save, save_file

from operation import files
from protocol import __version__
from protocol.messages import Closed, Trained
from protocol.model_bytes import ModelState
from protocol.schedule import Ending, Leg
from server_app.config.run_config import Settings
from server_app.experiment import first_model
from strategies.identifiers import HospitalName
from strategies.session.exchange import Answer
from strategies.session.observer import LegReport, Observer
from strategies.session.spool import StoredModel

if TYPE_CHECKING:
    from .evaluator import Evaluator
    from .evaluator_process import EvaluatorProcess

_REPORTED = ("flwr", "torch", "numpy")


class Recorder(Observer):
    """Writes down how an experiment goes, line by line, and sums it up at the end."""

    def __init__(
        self,
        run_dir: Path,
        settings: Settings,
        evaluator: "Evaluator | EvaluatorProcess",
        *,
        goes_on: bool = False,
    ) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir = run_dir
        self.evaluator = evaluator
        self._settings = settings
        self._goes_on = goes_on
        # "x": it never writes into another run's results.
        path = run_dir / "metrics.jsonl"
        half_a_line = goes_on and path.exists() and not path.read_bytes().endswith(b"\n")
        self._metrics = path.open("a" if goes_on else "x", encoding="utf-8")
        if half_a_line:  # of a run that was killed while it wrote
            self._metrics.write("\n")
        self._started = time.monotonic()
        self._legs = 0
        self._endings = dict.fromkeys(Ending, 0)
        self._bytes = {"up": 0, "down": 0}
        self._readable = 0
        self._readable_hand_overs = 0
        self._missing: dict[str, int] = {}
        self._lost_chains = self._missed_rounds = 0
        self._client_accuracies: list[float] = []
        self._held_out: list[float] = []
        if not goes_on:
            _write_json(run_dir / "settings.json", settings.as_config())

    # --- what FedDC tells -------------------------------------------------------------------------

    def started(
        self, experiment: str, hospitals: Mapping[HospitalName, int | None], legs: int
    ) -> None:
        self._legs = legs
        self._event(
            "start",
            experiment=experiment,
            legs=legs,
            rounds=self._settings.algorithm.rounds,
            hospitals=list(hospitals),
            examples=dict(hospitals),
        )

    def received(self, leg: Leg, hospital: str, model: StoredModel) -> None:
        if leg.number == self._legs:
            figures = self.evaluator.figures(model.load())
            if figures is not None:
                self._client_accuracies.append(figures.accuracy)

    def aggregated(self, leg: Leg, model: ModelState) -> None:
        if self._goes_on:  # a new experiment can start from it, whatever becomes of this one
            data = save(model.parameters | model.buffers)
            files.replace(self.run_dir / first_model.AGGREGATE, data, mode=0o600)
        figures = self.evaluator.figures(model)
        if figures is not None:
            self._event(
                "evaluation",
                leg=leg.number,
                round=leg.last_round,
                test_loss=figures.loss,
                test_accuracy=figures.accuracy,
                test_balanced_accuracy=figures.balanced_accuracy,
            )

    def leg_ended(self, report: LegReport) -> None:
        leg = report.leg
        self._endings[leg.ending] += 1
        self._lost_chains, self._missed_rounds = report.lost_chains, report.missed_rounds
        for name in report.missing:
            self._missing[name] = self._missing.get(name, 0) + 1
        for name, answer in report.answers.items():
            self._account(report, name, answer)
        replies = [a.reply for a in report.answers.values() if isinstance(a.reply, Trained)]
        self._event(
            "leg",
            leg=leg.number,
            ending=leg.ending,
            last_round=leg.last_round,
            asked=len(report.asked),
            answered=len(report.answered),
            missing=dict(report.missing),
            parked=list(report.parked),
            loss=_mean([reply.loss for reply in replies if reply.loss is not None]),
            accuracy=_mean([r.accuracy for r in replies if r.accuracy is not None]),
            lost_chains=report.lost_chains,
            missed_rounds=report.missed_rounds,
            seconds=report.seconds,
        )

    def generation_began(
        self,
        number: int,
        hospitals: Mapping[HospitalName, int | None],
        staying_out: Mapping[str, str],
    ) -> None:
        self._event(
            "generation",
            generation=number,
            hospitals=list(hospitals),
            examples=dict(hospitals),
            staying_out=dict(staying_out),
        )

    def waiting(self, leg: Leg, problem: str) -> None:
        self._event("waiting", leg=leg.number, problem=problem)

    def to_state(self) -> dict[str, Any]:
        return {
            "legs": self._legs,
            "endings": self._endings,
            "bytes": self._bytes,
            "readable": self._readable,
            "readable_hand_overs": self._readable_hand_overs,
            "missing": self._missing,
            "client_accuracies": self._client_accuracies,
            "seconds": time.monotonic() - self._started,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._legs = state["legs"]
        self._endings = {Ending(ending): count for ending, count in state["endings"].items()}
        self._bytes = dict(state["bytes"])
        self._readable = state["readable"]
        self._readable_hand_overs = state["readable_hand_overs"]
        self._missing = dict(state["missing"])
        self._client_accuracies = list(state["client_accuracies"])
        self._started -= state["seconds"]
        # What the killed run wrote of later legs stands above; it is written anew below.
        self._event("resumed", leg=sum(self._endings.values()), legs=self._legs)

    def closed(self, answers: Mapping[HospitalName, Answer]) -> None:
        for name, answer in answers.items():
            if isinstance(answer.reply, Closed) and answer.reply.held_out_accuracy is not None:
                self._held_out.append(answer.reply.held_out_accuracy)
                self._event(
                    "held-out",
                    hospital=name,
                    loss=answer.reply.held_out_loss,
                    accuracy=answer.reply.held_out_accuracy,
                )

    # --- the end ----------------------------------------------------------------------------------

    def completed(self, final: ModelState) -> dict[str, Any]:
        """Write the final model, a plot and the summary; return the summary.

        All of them are on the disk when this returns: the journal is deleted next.
        """
        with files.replacing(self.run_dir / first_model.FINAL) as draft:
            save_file(final.parameters | final.buffers, draft)
        (self.run_dir / first_model.AGGREGATE).unlink(missing_ok=True)
        figures = self.evaluator.figures(final)
        hand_overs = self._endings[Ending.HAND_OVER]
        summary = {
            "run_dir": str(self.run_dir.resolve()),
            "test_accuracy": figures.accuracy if figures else None,
            "test_balanced_accuracy": figures.balanced_accuracy if figures else None,
            "test_loss": figures.loss if figures else None,
            "mean_client_accuracy": _mean(self._client_accuracies),
            "mean_held_out_accuracy": _mean(self._held_out),
            "legs": self._legs,
            "hand_overs": hand_overs,
            "aggregations": self._endings[Ending.AGGREGATION],
            "bytes_up": self._bytes["up"],
            "bytes_down": self._bytes["down"],
            "sealed": self._readable_hand_overs == 0 if hand_overs else None,
            "readable_models": self._readable,
            "missing": self._missing,
            "lost_chains": self._lost_chains,
            "missed_rounds": self._missed_rounds,
            "seconds": time.monotonic() - self._started,
            "versions": {"feddc": __version__} | {name: version(name) for name in _REPORTED},
        }
        from .accuracy_plot import plot_accuracy  # matplotlib: only now

        files.sync_file(plot_accuracy(self.run_dir))
        _write_json(self.run_dir / "summary.json", summary)
        # Last, so that whoever waits for it finds everything in place.
        self._event("end", status="completed", reason="")
        os.fsync(self._metrics.fileno())
        self._metrics.close()
        return summary

    def failed(self, reason: str) -> None:
        """Say why there is no result."""
        self._event("end", status="failed", reason=reason)
        self._metrics.close()

    def _account(self, report: LegReport, name: str, answer: Answer) -> None:
        self._bytes["up"] += answer.bytes_up
        self._bytes["down"] += answer.bytes_down
        reply = answer.reply
        line: dict[str, Any] = {}
        if isinstance(reply, Trained):
            line = reply.model_dump(include={"loss", "accuracy", "held_out_loss"})
            line["held_out_accuracy"] = reply.held_out_accuracy
            self._readable += not reply.sealed
            if report.leg.ending is Ending.HAND_OVER:
                self._readable_hand_overs += not reply.sealed
        self._event(
            "hospital",
            leg=report.leg.number,
            hospital=name,
            problem=report.missing.get(name, ""),
            weight=report.weights.get(name),
            seconds=answer.seconds,
            bytes_up=answer.bytes_up,
            bytes_down=answer.bytes_down,
            **line,
        )

    def _event(self, event: str, **fields: object) -> None:
        line = {"event": event, "time": time.time(), **fields}
        self._metrics.write(json.dumps(_finite(line)) + "\n")
        self._metrics.flush()


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _finite(value: Any) -> Any:
    """JSON has no NaN: what is not a number becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return value


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(_finite(dict(content)), indent=2) + "\n"
    files.replace(path, text.encode())
