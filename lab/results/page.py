"""docs/results.md, made from results.json files and from nothing else."""

from collections.abc import Iterator, Sequence

from lab.results.findings import findings
from lab.results.origin import Results, origin
from lab.results.row import Row, rows_of
from lab.results.text import (
    EDGES,
    line,
    paper_text,
    rates_text,
    shown,
    spread_text,
    verdict_text,
)

_HEAD = f"""# Results

Made by `feddc lab report` from the files in [`docs/results`](results), which `feddc lab run` wrote.
Not edited by hand; a test compares. Every row is over the seeds named above its table, on the same
splits for every method.

- **Setting**: `full` has the paper's sizes; `laptop` has smaller networks and fewer hospitals and
  rounds, so that it takes minutes. Its accuracies can't be compared with the paper's; what can be
  is who is ahead of whom.
- **Accuracy** is on the test set, in eval mode, in per cent: mean over seeds ± the largest
  deviation from it, as in the paper's tables; [in brackets] the mean's 95 % interval, from five
  seeds on. Intervals are wider where seeds draw their test sets from the same examples.
- **Learning rate**: every method chose from the same grid by validation data, never by the test
  set. {EDGES}; a wider grid might
  have served that method better. With a grid of two values every choice is at an edge. The laptop
  settings themselves (sizes, rounds, the grid's range, the server's learning rate of FedAdagrad,
  FedYogi and FedAdam) were settled with trial runs on the first seed, its test accuracy in sight.
- **Verdicts**: *ahead* and *behind* need a 95 % interval of the paired difference without 0 in it,
  or, with three or four seeds, all of them to agree, which is weak evidence. Else it is
  *undecided*, which is no proof that there is no difference. *Not reproduced* is said where the
  paper's difference is outside of the interval (with three or four seeds: of their range). In
  the laptop setting that is about another network at another size: it says that the difference
  does not show there, not that the paper is wrong.
- **Seconds** are of one training on one core, with others beside it. Where the load is above the
  number of cores, the machine had other work to do too, and everything took longer than it would.
"""


def page(all_results: Sequence[Results]) -> str:
    """Return the whole page."""
    ordered = sorted(all_results, key=lambda results: str(results["experiment"]))
    parts = [_HEAD, "## In short\n", *_summary(ordered), ""]
    for results in ordered:
        parts += [*_section(results), ""]
    return "\n".join(parts).rstrip() + "\n"


def _summary(ordered: Sequence[Results]) -> Iterator[str]:
    head = ["experiment", "setting", "seeds", "FedDC"]
    head += ["over FedAvg(b): ours, paper", "over FedAvg(1): ours, paper"]
    yield line(*head)
    yield line(*["---"] * len(head))
    for results in ordered:
        rows = rows_of(results)
        for row in rows:
            if row.method != "feddc":
                continue
            place = f", {row.variant}" if row.variant else ""
            yield line(
                f"[{results['title']}](#{anchor(results)}){place}",
                results["setting"],
                len(results["seeds"]),
                f"{row.label}: {spread_text(row.headline, row)}",
                _gain_cell(results, row, "fedavg-b"),
                _gain_cell(results, row, "fedavg-1"),
            )


def _gain_cell(results: Results, row: Row, other: str) -> str:
    for gain in results["gains"]:
        if (gain["variant"], gain["method"], gain["over"]) == (row.variant, row.label, other):
            paper = "–" if gain["paper"] is None else f"{gain['paper']:+.1f}"
            return f"{shown(gain)['mean']:+.1f} ({verdict_text(gain)}), {paper}"
    return "–"


def _section(results: Results) -> Iterator[str]:
    yield f"## {heading(results)}\n"
    yield f"*{results['source']}.* {results['claim']}\n"
    yield f"{origin(results)}\n"
    yield from table(results)
    yield ""
    yield from (f"- {sentence}" for sentence in findings(results))
    if results["note"]:
        yield f"\n{results['note']}"
    for plot in results.get("plots", []):
        yield f"\n![{results['title']}](results/{results['experiment']}-{plot})"


def heading(results: Results) -> str:
    return f"{results['title']} (`{results['experiment']}`)"


def anchor(results: Results) -> str:
    """Return what GitHub makes of the heading."""
    kept = "".join(c for c in heading(results).lower() if c.isalnum() or c in "-_ ")
    return kept.replace(" ", "-")


def table(results: Results) -> Iterator[str]:
    rows = rows_of(results)
    variants = any(row.variant for row in rows)
    balanced = results["judged"] == "balanced-accuracy"
    head = [*(["in"] if variants else []), "method", "last aggregate"]
    head += [*(["balanced"] if balanced else []), "mean over clients", "paper"]
    head += ["learning rate", "aggregations", "models sent", "seconds"]
    yield line(*head)
    yield line(*["---"] * len(head))
    for row in rows:
        cells: list[object] = [row.variant] if variants else []
        cells += [row.label, spread_text(row.aggregate, row)]
        cells += [spread_text(row.balanced, row)] if balanced else []
        cells += [
            spread_text(row.clients, row) if row.clients else "–",
            paper_text(row),
            rates_text(row),
            row.aggregations or "–",
            f"{row.messages:,}" if row.messages else "–",
            f"{row.seconds:.1f}",
        ]
        yield line(*cells)
