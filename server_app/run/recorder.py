"""Records a run in its folder: settings, metrics, the model and a summary."""

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from logging import WARNING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operation import files
from operation.disk_space import Reserve
from operation.flower.logger import log
from operation.runs.event_file import FILE_NAME, ROUTES, EventWriter
from protocol import __version__
from protocol.messages import Closed, Trained
from protocol.model_bytes import ModelState
from protocol.model_file import to_model_file
from protocol.schedule import Leg
from protocol.secure_sum.held_out_totals import HeldOutTotals
from server_app.config.run_config import Settings
from server_app.experiment import first_model
from server_app.pages.report import NoPageFiles, write_reports
from strategies.identifiers import HospitalName
from strategies.session.exchange import Answer
from strategies.session.observer import LegReport, Observer
from strategies.session.storage.spool import StoredModel

from .json_file import write_json
from .notify import Notifier
from .run_totals import RunTotals, mean

if TYPE_CHECKING:
    from .evaluator import Evaluator
    from .evaluator_process import EvaluatorProcess

_REPORTED = ("flwr", "torch", "numpy")


class Recorder(Observer):
    """Writes an event line for everything that happens, and a summary at the end.

    `epsilon` is what the schedule costs a patient of a hospital that trains in every leg. What a
    hospital has really spent is in its own ledger, which the coordinator never sees.
    """

    def __init__(
        self,
        run_dir: Path,
        settings: Settings,
        evaluator: "Evaluator | EvaluatorProcess",
        *,
        resumable: bool = False,
        epsilon: Mapping[int, float] | None = None,
        held_out_examples: Mapping[str, int] | None = None,
        notifier: Notifier | None = None,
        on_final: Callable[[ModelState], None] = lambda final: None,
    ) -> None:
        """Begin a run, or continue it; `on_final` gets the final model before the run ends."""
        run_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir = run_dir
        self.evaluator = evaluator
        self._settings = settings
        self._resumable = resumable
        self._on_final = on_final
        self._notifier = notifier or Notifier("", study="", experiment="")
        self._epsilon = epsilon or {}  # as scheduled, after some of the legs
        self._publishing: Sequence[HospitalName] = ()
        self._held_out_examples = held_out_examples or {}  # where the coordinator knows them
        self._metrics = EventWriter(run_dir / FILE_NAME, append=resumable)
        self._started = time.monotonic()
        self._totals = RunTotals()
        # Who sent to whom: for the coordinator only, and for no longer than needed.
        self._routes = EventWriter(run_dir / ROUTES, append=resumable, mode=0o600)
        # On a full disk the reason must still be told.
        self._reserve = Reserve(run_dir / "reserve") if resumable else None
        if not resumable:
            write_json(run_dir / "settings.json", settings.as_config())

    # --- FedDC's events ---------------------------------------------------------------------------

    def publishing(self, hospitals: Sequence[HospitalName]) -> None:
        self._publishing = hospitals

    def started(
        self, experiment: str, hospitals: Mapping[HospitalName, int | None], legs: int
    ) -> None:
        self._totals.legs = legs
        self._metrics.write(
            "start",
            experiment=experiment,
            simulated=not self._resumable,
            legs=legs,
            rounds=self._settings.algorithm.rounds,
            hospitals=list(hospitals),
            examples=dict(hospitals),
            publishing=list(self._publishing),
        )

    def waiting_for_approval(self, hospitals: Mapping[HospitalName, str], fingerprint: str) -> None:
        self._metrics.write("approval", hospitals=dict(hospitals), fingerprint=fingerprint)

    def received(self, leg: Leg, hospital: str, model: StoredModel) -> None:
        if leg.number == self._totals.legs:
            metrics = self.evaluator.evaluate(model.load())
            if metrics is not None:
                self._totals.client_accuracies.append(metrics.accuracy)

    def aggregated(self, leg: Leg, model: ModelState) -> None:
        if self._resumable:  # a new experiment can start from it, even if this one is lost
            files.replace(self.run_dir / first_model.AGGREGATE, to_model_file(model), mode=0o600)
        metrics = self.evaluator.evaluate(model)
        if metrics is not None:
            self._metrics.write(
                "evaluation",
                leg=leg.number,
                round=leg.last_round,
                test_loss=metrics.loss,
                test_accuracy=metrics.accuracy,
                test_balanced_accuracy=metrics.balanced_accuracy,
            )

    def leg_ended(self, report: LegReport) -> None:
        leg = report.leg
        self._totals.add(report)
        self._notifier.resumed()
        for name, answer in report.answers.items():
            self._hospital_event(report, name, answer)
        self._routes.write("routes", leg=leg.number, ending=leg.ending, chains=report.routes)
        replies = [a.reply for a in report.answers.values() if isinstance(a.reply, Trained)]
        figures = report.figures
        self._metrics.write(
            "leg",
            leg=leg.number,
            ending=leg.ending,
            last_round=leg.last_round,
            asked=len(report.asked),
            answered=len(report.answered),
            missing=dict(report.missing),
            parked=list(report.parked),
            loss=figures.get("loss", mean([r.loss for r in replies if r.loss is not None])),
            accuracy=figures.get(
                "accuracy", mean([r.accuracy for r in replies if r.accuracy is not None])
            ),
            held_out_loss=figures.get("held_out_loss"),
            held_out_accuracy=figures.get("held_out_accuracy"),
            lost_chains=report.lost_chains,
            missed_rounds=report.missed_rounds,
            seconds=report.seconds,
        )
        if leg.number in self._epsilon:
            self._metrics.write(
                "privacy",
                leg=leg.number,
                round=leg.last_round,
                epsilon=self._epsilon[leg.number],
                delta=self._settings.algorithm.target_delta,
                basis="as scheduled",
            )

    def generation_began(
        self,
        number: int,
        hospitals: Mapping[HospitalName, int | None],
        staying_out: Mapping[str, str],
    ) -> None:
        self._metrics.write(
            "generation",
            generation=number,
            hospitals=list(hospitals),
            examples=dict(hospitals),
            publishing=list(self._publishing),
            staying_out=dict(staying_out),
        )

    def unanswered(self, leg: Leg, hospitals: Sequence[HospitalName], seconds: float) -> None:
        self._metrics.write(
            "unanswered", leg=leg.number, hospitals=list(hospitals), seconds=seconds
        )

    def waiting(self, leg: Leg, problem: str) -> None:
        self._metrics.write("waiting", leg=leg.number, problem=problem)
        self._notifier.tell("waiting")

    def to_state(self) -> dict[str, Any]:
        return self._totals.to_state() | {"seconds": time.monotonic() - self._started}

    def restore(self, state: Mapping[str, Any]) -> None:
        totals = self._totals = RunTotals.from_state(state)
        self._started -= state["seconds"]
        # Events of later legs, from the killed run, stand above this line; they are written again.
        self._metrics.write("resumed", leg=sum(totals.endings.values()), legs=totals.legs)

    def closed(self, answers: Mapping[HospitalName, Answer], totals: HeldOutTotals | None) -> None:
        if totals is not None:
            self._totals.held_out = {
                "hospitals": totals.hospitals,
                "examples": totals.count,
                "loss": totals.mean_loss,
                "accuracy": totals.accuracy,
                "balanced_accuracy": totals.balanced_accuracy,
            }
            self._metrics.write("held-out-total", **self._totals.held_out)
        for name, answer in answers.items():
            if isinstance(answer.reply, Closed) and answer.reply.held_out_accuracy is not None:
                self._totals.held_out_accuracies.append(answer.reply.held_out_accuracy)
                self._metrics.write(
                    "held-out",
                    hospital=name,
                    loss=answer.reply.held_out_loss,
                    accuracy=answer.reply.held_out_accuracy,
                    examples=self._held_out_examples.get(name),
                )

    # --- the end ----------------------------------------------------------------------------------

    def completed(self, final: ModelState) -> dict[str, Any]:
        """Write the final model, a plot and the summary; return the summary.

        All of them are on the disk when this returns: the journal is deleted next.
        """
        files.replace(self.run_dir / first_model.FINAL, to_model_file(final))
        (self.run_dir / first_model.AGGREGATE).unlink(missing_ok=True)
        self._on_final(final)
        metrics = self.evaluator.evaluate(final)
        summary = {
            "run_dir": str(self.run_dir.resolve()),
            "test_accuracy": metrics.accuracy if metrics else None,
            "test_balanced_accuracy": metrics.balanced_accuracy if metrics else None,
            "test_loss": metrics.loss if metrics else None,
            **self._totals.summary(),
            "scheduled_epsilon": self._epsilon.get(self._totals.legs),
            "delta": self._settings.algorithm.target_delta if self._epsilon else None,
            "seconds": time.monotonic() - self._started,
            "versions": {"feddc": __version__} | {name: version(name) for name in _REPORTED},
        }
        from .accuracy_plot import plot_accuracy  # matplotlib: only now

        files.sync_file(plot_accuracy(self.run_dir))
        self._routes.close()
        if self._resumable and not self._settings.algorithm.keep_routes:
            files.overwrite_and_remove(self.run_dir / ROUTES)
        self._write_reports(summary, status="completed")
        self._release_reserve()
        write_json(self.run_dir / "summary.json", summary)
        # Last: a reader that waits for this event finds all files in place.
        self._metrics.write("end", status="completed", reason="")
        self._metrics.close()
        self._notifier.tell("completed")
        return summary

    def failed(self, reason: str) -> None:
        """Record why there is no result."""
        self._release_reserve()
        self._write_reports({}, status="failed", reason=reason)
        self._metrics.write("end", status="failed", reason=reason)
        self._metrics.close()
        self._notifier.tell("failed")

    def interrupted(self) -> None:
        """Record that the process was asked to end before there was a result."""
        self._release_reserve()
        self._metrics.write("end", status="interrupted", reason="the ServerApp was stopped")
        self._metrics.close()

    def _release_reserve(self) -> None:
        if self._reserve is not None:
            self._reserve.release()

    def _write_reports(self, summary: dict[str, Any], **end: str) -> None:
        """Write the pages before the end is recorded; a run without pages is complete, too."""
        try:
            write_reports(self.run_dir, summary=summary, end=end)
        except (NoPageFiles, OSError) as error:
            log(WARNING, "no report: %s", error)

    def _hospital_event(self, report: LegReport, name: str, answer: Answer) -> None:
        reply = answer.reply
        line: dict[str, Any] = {}
        if isinstance(reply, Trained):
            line = reply.model_dump(include={"loss", "accuracy", "held_out_loss"})
            line["held_out_accuracy"] = reply.held_out_accuracy
        self._metrics.write(
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
