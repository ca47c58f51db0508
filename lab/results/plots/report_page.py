"""The report of a comparison: its table, differences and curves on one page that opens offline."""

from typing import Any

from lab.results.row import Row, rows_of
from lab.results.table import gain_lines, remarks
from lab.results.text import paper_text, rates_text, spread_text
from operation.terminal import counted
from server_app.pages.report import report
from server_app.pages.run_view import View

_FEW = 12  # points of a curve that are marked: a single one has no line


def report_page(results: dict[str, Any]) -> str:
    """Return the page of a results.json; of several variants the first is shown at first."""
    rows = rows_of(results)
    seeds = counted(len(results["seeds"]), "seed")
    common: View = {
        "findings": gain_lines(results),
        "note": " ".join(remarks(results)),
        "claim": f"The paper: {results['claim']}" if results["claim"] else "",
    }
    first = rows[0].variant if rows else ""
    views = [_view(row, results) | common | {"chosen": row.variant == first} for row in rows]
    return report(views, f"{results['title']} ({results['preset']} preset, {seeds})")


def _view(row: Row, results: dict[str, Any]) -> View:
    columns = _columns(row, results)
    title = f"{row.label}, {row.variant}" if row.variant else row.label
    settings = results["settings"] | row.settings
    return {
        "name": title,
        "title": title,
        "state": "completed",
        "method": row.label,
        "row": columns,
        "facts": columns + _details(row),
        "charts": [_chart(row, results)] if row.curve else [],
        "settings": [[key, str(value)] for key, value in settings.items()],
        "versions": {"PyTorch": results["hardware"].get("torch", "")},
    }


def _columns(row: Row, results: dict[str, Any]) -> list[list[str]]:
    columns = [["method", row.label]]
    columns += [["in", row.variant]] if row.variant else []
    columns += [["test accuracy, %", spread_text(row.aggregate, row)]]
    if results["judged"] == "balanced-accuracy":
        columns += [["balanced, %", spread_text(row.balanced, row)]]
    in_paper = any(other["paper"] is not None for other in results["rows"])
    return [
        *columns,
        ["mean over clients, %", spread_text(row.clients, row) if row.clients else "–"],
        ["on training data, %", spread_text(row.train, row) if row.train else "–"],
        ["best round, %", spread_text(row.best, row) if row.best else "–"],
        *([["paper, %", paper_text(row)]] if in_paper else []),
        ["learning rate", rates_text(row)],
        ["aggregations", f"{row.aggregations:,}" if row.aggregations else "–"],
        ["models sent", f"{row.messages:,}" if row.messages else "–"],
    ]


def _details(row: Row) -> list[list[str]]:
    seeds = ", ".join(f"{value:.1f}" for value in row.headline.values) if row.headline else ""
    details = [
        ["each seed, %", seeds],
        *(
            [title, spread_text(value, row) if value else ""]
            for title, value in (
                ("AUC, %", row.auc),
                ("sensitivity, %", row.sensitivity),
                ("specificity, %", row.specificity),
            )
        ),
        ["seconds of one training", f"{row.seconds:g}"],
    ]
    return [detail for detail in details if detail[1]]


def _chart(row: Row, results: dict[str, Any]) -> View:
    balanced = results["judged"] == "balanced-accuracy"
    rounds = [round_ for round_, _ in row.curve]
    means = [sum(values) / len(values) for _, values in row.curve]
    series = [_series("mean over seeds", rounds, means)]
    if len(results["seeds"]) > 1:
        by_seed = zip(*(values for _, values in row.curve), strict=True)
        series += [
            _series(f"seed {number}", rounds, list(each)) for number, each in enumerate(by_seed)
        ]
    return {
        "title": "Balanced test accuracy" if balanced else "Test accuracy",
        "unit": "%",
        "x": "rounds",
        "series": series,
    }


def _series(label: str, rounds: list[int], values: list[float]) -> View:
    few = len(rounds) <= _FEW
    return {"label": label, "points": few, "x": rounds, "y": [round(v, 2) for v in values]}
