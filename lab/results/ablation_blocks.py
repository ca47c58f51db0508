"""The generated blocks of docs/when-it-helps.md: a table and a plot for each ablation."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lab.results.findings import counts, marked_lead
from lab.results.origin import Results, origin
from lab.results.row import Row, name_of, rows_of
from lab.results.text import edges, line, shown, spread_text, verdict_text

_BLOCK = re.compile(r"<!-- ablation: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
_COUNTS = re.compile(r"<!-- counts -->\n.*?<!-- end -->", re.DOTALL)


def with_blocks(page: str, ablations: Mapping[str, Results]) -> str:
    """Return the page with every block regenerated; blocks without results are kept."""

    def block(match: re.Match[str]) -> str:
        results = ablations.get(match[1])
        return match[0] if results is None else _block(match[1], results)

    shown = [ablations[name] for name in blocks_of(page) if name in ablations]
    counted = "\n".join(
        ["<!-- counts -->", *(f"- {line}" for line in counts(shown)), "<!-- end -->"]
    )
    return _COUNTS.sub(lambda _: counted, _BLOCK.sub(block, page))


def blocks_of(page: str) -> list[str]:
    """Return the names of the ablations that a page shows."""
    return _BLOCK.findall(page)


def _block(name: str, results: Results) -> str:
    lines = [
        f"<!-- ablation: {name} -->",
        *_table(results),
        "",
        origin(results),
        *_edge_leads(results),
    ]
    for plot in results.get("plots", []):
        lines += ["", f"![{results['title']}: {plot}](results/{name}-{plot})"]
    return "\n".join([*lines, "<!-- end -->"])


def _table(results: Results) -> Iterator[str]:
    """Yield a row for each variant, with a column for each method and FedDC's gains."""
    rows = rows_of(results)
    methods = list(dict.fromkeys(row.method for row in rows))
    labels = [name_of(rows, method) for method in methods]
    compared = ("fedavg-b", "fedavg-1")
    head = ["", *labels, "FedDC over FedAvg(b)", "over FedAvg(1)"]
    yield line(*head)
    yield line(*["---"] * len(head))
    for variant in dict.fromkeys(row.variant for row in rows):
        here = {row.method: row for row in rows if row.variant == variant}
        cells = [_cell(here[method]) if method in here else "–" for method in methods]
        ours = here["feddc"].label if "feddc" in here else None
        gains = {
            gain["over"]: f"{shown(gain)['mean']:+.1f}{_interval(gain)}, {verdict_text(gain)}"
            for gain in results["gains"]
            if (gain["variant"], gain["method"]) == (variant, ours)
        }
        yield line(variant, *cells, *(gains.get(over, "–") for over in compared))


def _interval(gain: dict[str, Any]) -> str:
    if not shown(gain)["interval"]:
        return ""
    low, high = shown(gain)["interval"]
    return f" [{low:+.1f}, {high:+.1f}]"


def _cell(row: Row) -> str:
    return f"{spread_text(row.headline, row, interval=False)} {edges(row)}".strip()


def _edge_leads(results: Results) -> Iterator[str]:
    """Count FedDC's leads in which a learning rate is at an edge of the grid."""
    rows = rows_of(results)
    ahead = [gain for gain in results["gains"] if gain["verdict"] == "ahead"]
    marked = sum(bool(marked_lead(gain, rows)) for gain in ahead)
    if marked:
        yield (
            f"In {marked} of FedDC's {len(ahead)} leads, one of the two learning rates is at an "
            "edge of the grid for some seed (↑, ↓)."
        )
