"""A comparison's results: one row for each method in each variant, and what FedDC gains."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from lab.experiments import PaperFigure
from lab.experiments.definition import Values
from lab.results.gains import gains
from lab.results.hardware import hardware
from lab.results.row import FORMAT, Row
from lab.results.sizes import Sizes, sizes
from lab.results.statistics import Spread, spread
from lab.sweep import Plan, Record
from lab.sweep.plan import Cell
from learning.metrics import Metrics


def results(plan: Plan, records: Mapping[str, Record], seconds: float) -> dict[str, Any]:
    """Return what goes into results.json."""
    experiment = plan.experiment
    variants = {cell.variant.label: cell.variant for cell in plan.cells}
    size_of = {label: sizes(plan, variant) for label, variant in variants.items()}
    rows = [_row(plan, cell, records, size_of[cell.variant.label]) for cell in plan.cells]
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "claim": experiment.claim,
        "note": experiment.note,
        "setting": plan.request.setting,
        "judged": experiment.judged,
        "x_label": experiment.x_label,
        "settings": _told(experiment.settings | plan.size.settings),
        "variants": {label: _told(variant.settings) for label, variant in variants.items()},
        "learning_rates": list(plan.size.learning_rates),
        "learning_rates_chosen": experiment.choose,
        "validation": plan.size.validation,
        "test_sample": plan.size.test_sample,
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


def _told(settings: Values) -> Values:
    """Leave out where on this machine the data are: results are shown to others."""
    return {key: value for key, value in settings.items() if key != "data-dir"}


def _row(plan: Plan, cell: Cell, records: Mapping[str, Record], size: Sizes) -> Row:
    rates = [plan.rate_of(cell, seed, records) for seed in plan.seeds]
    finals = [
        records.get(plan.final(cell, seed, rate).key)
        for seed, rate in zip(plan.seeds, rates, strict=True)
        if rate is not None
    ]
    done = [record for record in finals if record is not None and record.status == "done"]
    paper = cell.variant.paper.get(cell.method.name) or _paper(plan, cell)
    some = done[0] if done else None

    def over_seeds(metrics: list[Metrics | None], name: str) -> Spread | None:
        values = [round(100 * getattr(each, name), 3) for each in metrics if each is not None]
        return spread(values, overlap=size.overlap) if values else None

    return Row(
        variant=cell.variant.label,
        x=cell.variant.x,
        method=cell.method.name,
        label=cell.method.label,
        judged_by=cell.method.judged_by,
        paper=paper.accuracy if paper else None,
        paper_deviation=paper.deviation if paper else None,
        settings=_told(cell.variant.settings | cell.method.settings),
        learning_rates=sorted({rate for rate in rates if rate is not None}),
        candidates=_candidates(plan, cell, records),
        aggregate=over_seeds([record.test for record in done], "accuracy"),
        balanced=over_seeds([record.test for record in done], "balanced_accuracy"),
        clients=over_seeds([record.clients for record in done], "accuracy"),
        clients_balanced=over_seeds([record.clients for record in done], "balanced_accuracy"),
        train=over_seeds([record.trained_on for record in done], "accuracy"),
        hand_overs=some.hand_overs if some else 0,
        aggregations=some.aggregations if some else 0,
        messages=some.messages if some else 0,
        client_rounds=some.client_rounds if some else 0,
        seconds=round(sum(record.seconds for record in done) / max(1, len(done)), 2),
        diverged=len(plan.seeds) - len(done),
        test_size=size.test,
        pool_size=size.pool,
        overlap=size.overlap,
    )


def _paper(plan: Plan, cell: Cell) -> PaperFigure | None:
    """Return the experiment's own figure, unless its variants have theirs."""
    if any(variant.paper for variant in plan.experiment.variants_in(plan.request.setting)):
        return None
    return plan.experiment.paper.get(cell.method.name)


def _candidates(plan: Plan, cell: Cell, records: Mapping[str, Record]) -> dict[str, float | None]:
    """Return the validation accuracy of each learning rate, mean over the seeds it was tried on;
    none where it diverged on all."""
    if len(plan.rates(cell)) == 1:
        return {}
    scores = [plan.scores(cell, seed, records) for seed in plan.choosing_seeds]
    found = {rate: [each[rate] for each in scores if rate in each] for rate in plan.rates(cell)}
    return {
        f"{rate:g}": round(100 * sum(each) / len(each), 2) if each else None
        for rate, each in found.items()
    }
