"""The parts of docs/when-it-helps.md that come from studies: a table and a plot each."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lab.results.findings import counts, marked_lead
from lab.results.origin import Results, origin
from lab.results.row import Row, name_of, rows_of
from lab.results.text import edges, line, shown, spread_text, verdict_text

_BLOCK = re.compile(r"<!-- study: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
_COUNTS = re.compile(r"<!-- counts -->\n.*?<!-- end -->", re.DOTALL)


def with_blocks(page: str, studies: Mapping[str, Results]) -> str:
    """Return the page with every block made anew; one whose study is missing stays as it is."""

    def block(match: re.Match[str]) -> str:
        results = studies.get(match[1])
        return match[0] if results is None else _block(match[1], results)

    shown = [studies[name] for name in blocks_of(page) if name in studies]
    counted = "\n".join(
        ["<!-- counts -->", *(f"- {line}" for line in counts(shown)), "<!-- end -->"]
    )
    return _COUNTS.sub(lambda _: counted, _BLOCK.sub(block, page))


def blocks_of(page: str) -> list[str]:
    """Return the studies that a page shows."""
    return _BLOCK.findall(page)


def _block(name: str, results: Results) -> str:
    lines = [
        f"<!-- study: {name} -->",
        *_table(results),
        "",
        origin(results),
        *_edge_leads(results),
    ]
    for plot in results.get("plots", []):
        lines += ["", f"![{results['title']}: {plot}](results/{name}-{plot})"]
    return "\n".join([*lines, "<!-- end -->"])


def _table(results: Results) -> Iterator[str]:
    """One line for each variant, one column for each method, and FedDC's gains."""
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
    """Say how many leads are between learning rates of which one might lie beyond the grid."""
    rows = rows_of(results)
    ahead = [gain for gain in results["gains"] if gain["verdict"] == "ahead"]
    marked = sum(bool(marked_lead(gain, rows)) for gain in ahead)
    if marked:
        yield (
            "Of FedDC's leads, those where its learning rate or the other's is at an edge of the "
            f"grid for some seed (↑, ↓): {marked} of {len(ahead)}."
        )
