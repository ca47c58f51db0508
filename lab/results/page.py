"""docs/results.md, made from results.json files and from nothing else."""

from collections.abc import Iterator, Sequence
from typing import Any

from lab.results.row import Row, row_from_json
from lab.results.statistics import Spread

Results = dict[str, Any]

_HEAD = """# Results

Made by `feddc lab report` from the files in [`docs/results`](results), which `feddc lab run` wrote.
Not edited by hand; a test compares. Every row is over the seeds named above its table, on the same
splits for every method.

- **Setting**: `full` has the paper's sizes; `laptop` has smaller networks and fewer hospitals and
  rounds, so that it takes minutes. Its accuracies can't be compared with the paper's; what can be
  is who is ahead of whom.
- **Accuracy** is on the test set, in eval mode, in per cent: mean over seeds ± the largest
  deviation from it, as in the paper's tables; [in brackets] the mean's 95 % interval, from five
  seeds on. The last aggregate is judged on all test data, the hospitals' own models perhaps on a
  sample of them.
- **Learning rate**: every method chose from the same grid by validation data, never by the test
  set. The laptop settings themselves (sizes, rounds, the grid's range, the server's learning rate
  of FedAdagrad, FedYogi and FedAdam) were settled with trial runs on the first seed, its test
  accuracy in sight.
- **Verdicts**: *ahead* and *behind* need a 95 % interval of the paired difference without 0 in it,
  or, with fewer than five seeds, all seeds to agree, which is weak evidence. Else: *no difference*.
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
    yield _line(*head)
    yield _line(*["---"] * len(head))
    for results in ordered:
        rows = rows_of(results)
        for row in rows:
            if row.method != "feddc":
                continue
            place = f", {row.variant}" if row.variant else ""
            yield _line(
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
            return f"{gain['gain']['mean']:+.1f} ({gain['verdict']}), {paper}"
    return "–"


def _section(results: Results) -> Iterator[str]:
    yield f"## {heading(results)}\n"
    yield f"*{results['source']}.* {results['claim']}\n"
    yield f"{ran(results)}\n"
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


def ran(results: Results) -> str:
    """Say how the figures came about."""
    hardware = results["hardware"]
    machine = hardware["gpu"] or hardware["processor"]
    load = hardware.get("load") or "unknown"
    seeds = results["seeds"]
    return (
        f"`feddc lab run {results['experiment']} --setting {results['setting']} "
        f"--seeds {len(seeds)}`: seeds {seeds[0]} to {seeds[-1]}, {results['seconds']:.0f} s on "
        f"{hardware['cores']} cores ({machine}, PyTorch {hardware['torch']}; load {load} at the "
        f"end), {results['when']}. "
        f"{choice(results)} Settings: {settings_text(results['settings'])}."
    )


def choice(results: Results) -> str:
    """Say how learning rates were chosen."""
    rates = ", ".join(f"{rate:g}" for rate in results["learning_rates"])
    if all("learning-rate" in row["settings"] for row in results["rows"]):
        return "The learning rate is what is varied."
    if len(results["learning_rates"]) == 1:
        return f"Learning rate {rates} for all."
    chosen = (
        "on the first seed's validation data"
        if results["learning_rates_chosen"] == "once"
        else "for each seed on its own validation data"
    )
    return f"Every method chose its learning rate from {rates} {chosen}."


def settings_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"`{key} = {value}`" for key, value in sorted(settings.items()))


def table(results: Results) -> Iterator[str]:
    rows = rows_of(results)
    variants = any(row.variant for row in rows)
    balanced = results["judged"] == "balanced-accuracy"
    head = [*(["in"] if variants else []), "method", "last aggregate"]
    head += [*(["balanced"] if balanced else []), "mean over clients", "paper"]
    head += ["learning rate", "aggregations", "models sent", "seconds"]
    yield _line(*head)
    yield _line(*["---"] * len(head))
    for row in rows:
        cells: list[object] = [row.variant] if variants else []
        cells += [row.label, spread_text(row.aggregate, row)]
        cells += [spread_text(row.balanced, row)] if balanced else []
        cells += [
            spread_text(row.clients, row) if row.clients else "–",
            "–" if row.paper is None else f"{row.paper:g}" + _deviation(row),
            ", ".join(f"{rate:g}" for rate in row.learning_rates) or "–",
            row.aggregations or "–",
            f"{row.messages:,}" if row.messages else "–",
            f"{row.seconds:.1f}",
        ]
        yield _line(*cells)


def findings(results: Results) -> Iterator[str]:
    """Say for each comparison whether it shows what the paper reports."""
    for gain in results["gains"]:
        place = f"{gain['variant']}: " if gain["variant"] else ""
        ours = gain["gain"]
        measured = f"{gain['method']} over {gain['over_label']} {ours['mean']:+.1f} points"
        if ours["interval"]:
            low, high = ours["interval"]
            measured += f" (95 % interval {low:+.1f} … {high:+.1f})"
        elif len(ours["values"]) > 1:
            measured += f" (seeds {min(ours['values']):+.1f} … {max(ours['values']):+.1f})"
        if results["judged"] == "balanced-accuracy" and gain["balanced_gain"]:
            measured += f", in balanced accuracy {gain['balanced_gain']['mean']:+.1f}"
        yield f"{place}{measured}: {_against_paper(gain)}"


def _against_paper(gain: dict[str, Any]) -> str:
    verdict, paper, mean = gain["verdict"], gain["paper"], gain["gain"]["mean"]
    if paper is None:
        return f"{verdict}; the paper has no figure for it."
    reported = f"the paper reports {paper:+.1f}"
    if paper <= 0:
        return f"{verdict}; {reported}."
    if verdict == "behind":
        return f"**behind; {reported}: not reproduced.**"
    if verdict == "no difference":
        return f"**no difference; {reported}: not reproduced.**"
    if mean < paper / 2:
        return f"ahead, **but by less than half of the {paper:+.1f} that the paper reports.**"
    return f"ahead; {reported}."


def rows_of(results: Results) -> list[Row]:
    return [row_from_json(values) for values in results["rows"]]


def spread_text(value: Spread | None, row: Row, *, interval: bool = True) -> str:
    if value is None:
        return "diverged" if row.diverged else "–"
    text = f"{value.mean:.1f}"
    if len(value.values) > 1:
        text += f" ± {value.max_deviation:.1f}"
    if value.interval and interval:
        text += f" [{value.interval[0]:.1f}, {value.interval[1]:.1f}]"
    return text + (f" ({row.diverged} diverged)" if row.diverged else "")


def _deviation(row: Row) -> str:
    return f" ± {row.paper_deviation:g}" if row.paper_deviation else ""


def _line(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
