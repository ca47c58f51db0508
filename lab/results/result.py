"""The results of a comparison: a row for each method in each variant, and FedDC's gains."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from lab.engine.private.budget import run_epsilon
from lab.experiments import PaperFigure
from lab.experiments.definition import Values
from lab.results.course import best_point, joint_curve
from lab.results.gains import gains
from lab.results.hardware import hardware
from lab.results.row import FORMAT, Row
from lab.results.sizes import Sizes, sizes
from lab.results.statistics import Spread, spread
from lab.sweep import Record, SweepPlan
from lab.sweep.plan import Cell
from learning.metrics import BinaryMetrics, Metrics
from protocol.randomness import STREAMS_VERSION
from server_app.config.run_config import Settings

# Stands for a cell without a finished trial: no communication, no computation.
_NO_RECORD = Record("", "", 0, 0.0, "diverged")


def results(plan: SweepPlan, records: Mapping[str, Record], seconds: float) -> dict[str, Any]:
    """Return the contents of results.json."""
    experiment = plan.experiment
    variants = {cell.variant.label: cell.variant for cell in plan.cells}
    size_of = {label: sizes(plan, variant) for label, variant in variants.items()}
    rows = [_row(plan, cell, records, size_of[cell.variant.label]) for cell in plan.cells]
    return {
        "format": FORMAT,
        "streams": STREAMS_VERSION,
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "claim": experiment.claim,
        "note": experiment.note,
        "preset": plan.request.preset,
        "judged": experiment.judged,
        "x_label": experiment.x_label,
        "settings": _public(experiment.settings | plan.preset.settings),
        "variants": {label: _public(variant.settings) for label, variant in variants.items()},
        "learning_rates": list(plan.preset.learning_rates),
        "learning_rates_chosen": experiment.choose,
        "validation": plan.preset.validation,
        "test_sample": plan.preset.test_sample,
        "seeds": list(plan.seeds),
        "when": f"{datetime.now(UTC):%Y-%m-%d}",
        "hardware": hardware(),
        "seconds": round(seconds, 1),
        "core_seconds": round(sum(record.seconds for record in records.values()), 1),
        "rows": [asdict(row) for row in rows],
        "gains": [
            asdict(gain) for gain in gains(rows, balanced=experiment.judged == "balanced-accuracy")
        ],
    }


def _public(settings: Values) -> Values:
    """Leave out the local path of the data: results are published."""
    return {key: value for key, value in settings.items() if key != "data-dir"}


def _row(plan: SweepPlan, cell: Cell, records: Mapping[str, Record], size: Sizes) -> Row:
    rates = {plan.rate_of(cell, seed, records) for seed in plan.seeds}
    done = plan.reported(cell, records)
    some = done[0] if done else _NO_RECORD
    paper = _paper(plan, cell)

    def over_seeds(metrics: Sequence[Metrics | BinaryMetrics | None], name: str) -> Spread | None:
        values = [round(100 * getattr(each, name), 3) for each in metrics if each is not None]
        return spread(values, overlap=size.overlap) if values else None

    binary = [record.binary for record in done]
    balanced = plan.experiment.judged == "balanced-accuracy"
    best = [best_point(record.curve, balanced=balanced) for record in done]
    found = [point for point in best if point is not None]

    return Row(
        variant=cell.variant.label,
        x=cell.variant.x,
        method=cell.method.name,
        label=cell.method.label,
        judged_by=cell.method.judged_by,
        paper=paper.accuracy if paper else None,
        paper_deviation=paper.deviation if paper else None,
        settings=_public(cell.variant.settings | cell.method.settings),
        learning_rates=sorted(rate for rate in rates if rate is not None),
        candidates=_candidates(plan, cell, records),
        aggregate=over_seeds([record.test for record in done], "accuracy"),
        balanced=over_seeds([record.test for record in done], "balanced_accuracy"),
        clients=over_seeds([record.clients for record in done], "accuracy"),
        clients_balanced=over_seeds([record.clients for record in done], "balanced_accuracy"),
        train=over_seeds([record.trained_on for record in done], "accuracy"),
        hand_overs=some.hand_overs,
        aggregations=some.aggregations,
        messages=some.messages,
        client_rounds=some.client_rounds,
        seconds=round(sum(record.seconds for record in done) / max(1, len(done)), 2),
        diverged=len(plan.seeds) - len(done),
        test_size=size.test,
        pool_size=size.pool,
        overlap=size.overlap,
        epsilon=_epsilon(plan, cell),
        delta=_settings(plan, cell).algorithm.target_delta,
        best=spread([accuracy for _, accuracy in found], overlap=size.overlap) if found else None,
        best_rounds=[round_ for round_, _ in found],
        auc=over_seeds(binary, "auc"),
        sensitivity=over_seeds(binary, "sensitivity"),
        specificity=over_seeds(binary, "specificity"),
        curve=joint_curve([record.curve for record in done], balanced=balanced),
    )


def _settings(plan: SweepPlan, cell: Cell) -> Settings:
    return plan.final(cell, plan.seeds[0], plan.rates(cell)[0]).settings


def _epsilon(plan: SweepPlan, cell: Cell) -> float | Literal["unbounded"] | None:
    if cell.method.central:
        return None
    spent = run_epsilon(_settings(plan, cell))
    if spent is not None and math.isinf(spent):
        return "unbounded"
    return None if spent is None else round(spent, 3)


def _paper(plan: SweepPlan, cell: Cell) -> PaperFigure | None:
    """Return the variant's accuracy in the paper, or the experiment's if no variant has one."""
    if own := cell.variant.paper.get(cell.method.name):
        return own
    if any(variant.paper for variant in plan.experiment.variants_in(plan.request.preset)):
        return None
    return plan.experiment.paper.get(cell.method.name)


def _candidates(
    plan: SweepPlan, cell: Cell, records: Mapping[str, Record]
) -> dict[str, float | None]:
    """Return the mean validation accuracy of each learning rate; None where all seeds diverged."""
    if len(plan.rates(cell)) == 1:
        return {}
    scores = [plan.scores(cell, seed, records) for seed in plan.choosing_seeds]
    found = {rate: [each[rate] for each in scores if rate in each] for rate in plan.rates(cell)}
    return {
        f"{rate:g}": round(100 * sum(each) / len(each), 2) if each else None
        for rate, each in found.items()
    }
