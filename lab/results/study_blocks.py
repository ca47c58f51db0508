"""The parts of docs/when-it-helps.md that come from studies: a table and a plot each."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lab.results.page import Results, ran, rows_of, spread_text

_BLOCK = re.compile(r"<!-- study: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)


def with_blocks(page: str, studies: Mapping[str, Results]) -> str:
    """Return the page with every block made anew; one whose study is missing stays as it is."""

    def block(match: re.Match[str]) -> str:
        results = studies.get(match[1])
        return match[0] if results is None else _block(match[1], results)

    return _BLOCK.sub(block, page)


def blocks_of(page: str) -> list[str]:
    """Return the studies that a page shows."""
    return _BLOCK.findall(page)


def _block(name: str, results: Results) -> str:
    lines = [f"<!-- study: {name} -->", *_table(results), "", ran(results)]
    for plot in results.get("plots", []):
        lines += ["", f"![{results['title']}: {plot}](results/{name}-{plot})"]
    return "\n".join([*lines, "<!-- end -->"])


def _table(results: Results) -> Iterator[str]:
    """One line for each variant, one column for each method, and FedDC's gains."""
    rows = rows_of(results)
    methods = dict.fromkeys(row.method for row in rows)
    labels = {row.method: row.label for row in reversed(rows)}
    for method in methods:
        if len({row.label for row in rows if row.method == method}) > 1:
            labels[method] = {"feddc": "FedDC(1, b)", "fedavg-b": "FedAvg(b)"}.get(method, method)
    compared = ("fedavg-b", "fedavg-1")
    head = ["", *(labels[method] for method in methods), "FedDC over FedAvg(b)", "over FedAvg(1)"]
    yield _line(*head)
    yield _line(*["---"] * len(head))
    for variant in dict.fromkeys(row.variant for row in rows):
        here = {row.method: row for row in rows if row.variant == variant}
        cells = [
            spread_text(here[method].headline, here[method], interval=False)
            if method in here
            else "–"
            for method in methods
        ]
        ours = here["feddc"].label if "feddc" in here else None
        gains = {
            gain["over"]: f"{gain['gain']['mean']:+.1f}{_interval(gain)}, {gain['verdict']}"
            for gain in results["gains"]
            if (gain["variant"], gain["method"]) == (variant, ours)
        }
        yield _line(variant, *cells, *(gains.get(over, "–") for over in compared))


def _interval(gain: dict[str, Any]) -> str:
    if not gain["gain"]["interval"]:
        return ""
    low, high = gain["gain"]["interval"]
    return f" [{low:+.1f}, {high:+.1f}]"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
