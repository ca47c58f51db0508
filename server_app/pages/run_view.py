"""What a page shows of a run, as JSON: for the coordinator, or to hand out.

What is handed out has no routes and no hospital's own figures, counts or times, except the figures
of hospitals that publish them. A mean of fewer than three hospitals would give away theirs, and is
left out. Seeds, paths, journal, payloads and keys are on no page.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from operation.runs.curve import Curve, Point
from operation.runs.event_file import ROUTES, finite
from operation.runs.history import (
    HospitalHistory,
    RunHistory,
    approval_text,
    duration,
    waiting_text,
)
from operation.runs.pooling import is_pooled
from operation.terminal import byte_size, percent

from .chain_map import chain_map
from .forest import forest
from .published import pooled_only, published_accuracies, published_losses, published_rows

_SECRET_WORDS = ("seed", "secret", "key", "token", "dir", "path")

_MOST_ABSENT = 8

View = dict[str, Any]


@dataclass
class RunRecord:
    """A run as its folder has it."""

    name: str
    history: RunHistory
    settings: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    routes: Path | None = None

    @staticmethod
    def read(folder: Path) -> "RunRecord":
        """Read a run's folder; parts that are not there yet are left out."""
        record = RunRecord(folder.resolve().name, RunHistory.read(folder))
        record.read_files(folder)
        return record

    def read_files(self, folder: Path) -> None:
        """Read the files beside the events, which appear at the start and at the end."""
        self.settings = self.settings or _json(folder / "settings.json")
        self.summary = self.summary or _json(folder / "summary.json")
        self.routes = folder / ROUTES


def public_view(run: RunRecord) -> View:
    """Return what may be handed out."""
    history = run.history
    losses, accuracies = published_losses(history), published_accuracies(history)
    return {
        **_common(run),
        "audience": "public",
        "facts": _facts(run) + _pooled_absences(history),
        "charts": _charts(history, partial(pooled_only, beside_losses=bool(losses)))
        + _hospital_charts(losses),
        "published": published_rows(history, losses, accuracies),
        "forest": forest(accuracies, _pooled(run)),
        "note": "Figures are pooled over the hospitals. This page has no hospital's own figures, "
        "counts or times, except figures of those that publish them, and not who sent a model to "
        "whom.",
    }


def coordinator_view(run: RunRecord, *, online: dict[str, bool] | None = None) -> View:
    """Return everything that the coordinator may see."""
    history = run.history
    return {
        **_common(run),
        "audience": "coordinator",
        "reason": str((history.end or {}).get("reason") or ""),
        "waiting": waiting_line(history),
        "latest": history.latest,
        "facts": [*_facts(run), ["absent (legs)", _absent(history)]],
        "charts": _charts(history) + _hospital_charts(history.hospitals),
        "hospitals": [
            _hospital_row(name, one, history, (online or {}).get(name))
            for name, one in sorted(history.hospitals.items())
        ],
        "map": chain_map(history, run.routes),
        "forest": forest(history.hospitals, _pooled(run)),
        "note": ""
        if history.is_simulated
        else "For the coordinator only: it has single hospitals' figures. Hand out report.html.",
    }


def state_of(history: RunHistory) -> str:
    """Return the state of a run in one word, from its events alone."""
    if history.end is not None:
        return str(history.end.get("status") or "failed")
    if history.approval is not None:
        return "waiting for approval"
    if history.waiting is not None:
        return "waiting"
    return "running" if history.legs else "starting"


# --- parts of both pages --------------------------------------------------------------------------


def _common(run: RunRecord) -> View:
    history = run.history
    return {
        "name": run.name,
        "state": state_of(history),
        "simulated": history.is_simulated,
        "legs": history.legs,
        "done": history.done,
        "method": _method(run.settings),
        "accuracy": history.test_accuracy,
        "settings": [
            [key, str(value).lower() if isinstance(value, bool) else str(value)]
            for key, value in run.settings.items()
            if not any(word in key.split("-") for word in _SECRET_WORDS)
            and value != ""
            and not _is_path(value)
        ],
        "versions": run.summary.get("versions", {}),
    }


def _method(settings: dict[str, Any]) -> str:
    if not settings:
        return ""
    daisy, period = settings.get("daisy-period", 0), settings.get("aggregation-period", 0)
    aggregator = str(settings.get("aggregator", "fedavg"))
    if not daisy:
        return f"{aggregator}({period})"
    return f"FedDC({daisy}, {period or '∞'}) around {aggregator}"


def _facts(run: RunRecord) -> list[list[str]]:
    history, summary = run.history, run.summary
    facts = [
        ["method", _method(run.settings)],
        ["hospitals", f"{len(history.hospitals)}{' (simulated)' if history.is_simulated else ''}"],
        ["rounds", f"{history.last_round + 1} of {history.rounds}" if history.rounds else ""],
        ["legs", _legs(history)],
        ["test accuracy", percent(history.test_accuracy, unknown="")],
        ["balanced accuracy", percent(summary.get("test_balanced_accuracy"), unknown="")],
        ["held-out accuracy, mean over hospitals", percent(_pooled(run), unknown="")],
        ["sent", _sent(history)],
        ["hand-overs", _sealed(summary.get("sealed"))],
        ["single models that the coordinator could read", str(summary.get("readable_models", ""))],
        ["lost chains", str(history.lost_chains) if history.done else ""],
        ["missed rounds", str(history.missed_rounds) if history.done else ""],
        ["privacy, as scheduled", _epsilon(history)],
        ["duration", _duration(run)],
    ]
    return [fact for fact in facts if fact[1]]


def _legs(history: RunHistory) -> str:
    if not history.legs:
        return ""
    aggregations = len(history.aggregations)
    return (
        f"{history.done} of {history.legs}: {history.done - aggregations} hand-overs, "
        f"{aggregations} aggregations"
    )


def _sent(history: RunHistory) -> str:
    if not history.bytes_up + history.bytes_down:
        return ""
    return f"{byte_size(history.bytes_up)} up, {byte_size(history.bytes_down)} down"


def _absent(history: RunHistory) -> str:
    """Name the hospitals that were missing most often; the table of hospitals has all."""
    ordered = history.absences.most_common()
    named = [f"{name} in {count}" for name, count in ordered[:_MOST_ABSENT]]
    more = len(ordered) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "") or "none"


def _pooled_absences(history: RunHistory) -> list[list[str]]:
    total = sum(history.absences.values())
    return [["absences, over all hospitals and legs", str(total)]]


def _pooled(run: RunRecord) -> float | None:
    """Return the mean held-out accuracy of the final model, if it is of enough hospitals."""
    total = run.history.held_out_total
    if total is not None and is_pooled(total["hospitals"]):
        return float(total["accuracy"])
    disclosing = [h for h in run.history.hospitals.values() if h.held_out_accuracy is not None]
    if disclosing and not is_pooled(len(disclosing)):
        return None
    if not disclosing and run.history.held_out.points:
        _, _, accuracy, hospitals = run.history.held_out.points[-1]  # of a secure sum
        return accuracy if is_pooled(hospitals) else None
    mean = run.summary.get("mean_held_out_accuracy")
    return None if mean is None else float(mean)


def _charts(history: RunHistory, pooled: Callable[[Point], Point] | None = None) -> list[View]:
    """Return the curves over all hospitals; `pooled` leaves out what may not be handed out."""
    training, held_out = Curve(), Curve()
    for point in history.training.points:
        training.add(*(pooled(point) if pooled else point))
    for x, loss, accuracy, hospitals in history.held_out.points:
        if pooled is None or is_pooled(hospitals):
            held_out.add(x, loss, accuracy)
    charts: list[View] = []
    for title, column, scale in (("Accuracy", 2, 100.0), ("Loss", 1, 1.0)):
        series = [
            _series("test, each aggregate", history.test, column, scale, points=True),
            _series("training, mean over hospitals", training, column, scale),
            _series("held-out, mean over hospitals", held_out, column, scale, points=True),
        ]
        unit = "%" if title == "Accuracy" else ""
        charts.append({"title": title, "unit": unit, "x": "rounds", "series": series})
    charts.append(
        {
            "title": "Privacy, as scheduled",
            "unit": "ε",
            "x": "rounds",
            "series": [_series("ε of a hospital in every leg", history.privacy, 1, 1.0)],
        }
    )
    return [chart | {"series": kept} for chart in charts if (kept := _nonempty(chart["series"]))]


def _hospital_charts(hospitals: Mapping[str, HospitalHistory]) -> list[View]:
    series = [_series(name, one.curve, 1, 1.0) for name, one in sorted(hospitals.items())]
    if not (kept := _nonempty(series)):
        return []
    return [{"title": "Loss at each hospital", "unit": "", "x": "legs", "series": kept}]


def _series(label: str, curve: Curve, column: int, scale: float, *, points: bool = False) -> View:
    known = [(p[0], scale * p[column]) for p in curve.points if not math.isnan(p[column])]
    return {
        "label": label,
        "points": points,
        "x": [x for x, _ in known],
        "y": [float(f"{y:.5g}") for _, y in known],
    }


def _nonempty(series: list[View]) -> list[View]:
    return [one for one in series if one["x"]]


def _hospital_row(
    name: str, one: HospitalHistory, history: RunHistory, online: bool | None
) -> View:
    row: View = finite(
        {
            "name": name,
            "state": _hospital_state(one, history),
            "online": online,
            "problem": one.problem,
            "last_seen": one.last_seen,
            "leg": one.leg,
            "loss": one.loss,
            "examples": one.examples,
            "missing": one.missing,
            "bytes_up": one.bytes_up,
            "bytes_down": one.bytes_down,
        }
    )
    return row


def _hospital_state(one: HospitalHistory, history: RunHistory) -> str:
    if one.approval:
        return one.approval
    if one.is_parked:
        return "parked"
    if one.problem:
        return "missing"
    if history.end is not None:
        return "done" if history.has_completed else "stopped"
    return "training" if history.done or one.leg else "ready"


def waiting_line(history: RunHistory) -> str:
    """Return what the run waits for, with the hospitals' names; empty if it does not wait."""
    return " ".join(filter(None, (waiting_text(history.waiting), approval_text(history.approval))))


def _sealed(sealed: bool | None) -> str:
    return "" if sealed is None else "sealed" if sealed else "not sealed"


def _epsilon(history: RunHistory) -> str:
    if not history.privacy.points:
        return ""
    delta = "" if history.delta is None else f" (δ = {history.delta:g})"
    return (
        f"ε = {history.privacy.points[-1][1]:.3g}{delta} for a hospital that trained in every leg; "
        "what each has spent is in its own ledger"
    )


def _duration(run: RunRecord) -> str:
    seconds = run.summary.get("seconds")
    if seconds is None and run.history.started and run.history.latest:
        seconds = run.history.latest - run.history.started
    return "" if seconds is None else duration(seconds)


def _is_path(value: object) -> bool:
    return isinstance(value, str) and (value.startswith("~") or PurePath(value).is_absolute())


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
