"""The origin of results: command, hardware, settings and test sets."""

from collections.abc import Iterator
from typing import Any

from lab.results.row import Row, rows_of
from protocol.randomness import STREAMS_VERSION

Results = dict[str, Any]


def origin(results: Results) -> str:
    """Describe the origin of results in one paragraph."""
    hardware = results["hardware"]
    machine = hardware["gpu"] or hardware["processor"]
    load = hardware.get("load") or "unknown"
    seeds = results["seeds"]
    parts = [
        f"`feddc lab run {results['experiment']} --preset {results['preset']} "
        f"--seeds {len(seeds)}`: {_seeds(seeds)}, {results['seconds']:.0f} s on "
        f"{hardware['cores']} cores ({machine}, PyTorch {hardware['torch']}; load {load} at the "
        f"end), {results['when']}{_streams(results)}.",
        choice(results),
        f"Settings: {settings_text(_shared(results))}.",
        *_own_settings(results),
        *test_sets(results),
    ]
    return " ".join(parts)


def _streams(results: Results) -> str:
    return "" if results.get("streams", 1) == STREAMS_VERSION else ", random streams of version 1"


def _seeds(seeds: list[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def task(results: Results, variant: str | None = None) -> str:
    """List data, network, hospitals, examples and rounds, without those the variants change."""
    settings = results["settings"] | results["variants"].get(variant, {})
    if variant is None:
        for changed in results["variants"].values():
            settings = {key: value for key, value in settings.items() if key not in changed}
    forms = {
        "dataset": "{}",
        "model": "{}",
        "hospitals": "{} hospitals",
        "examples": "{} examples each" + _on_average(settings),
        "rounds": "{} rounds",
    }
    return ", ".join(form.format(settings[key]) for key, form in forms.items() if key in settings)


def sizes(results: Results) -> str:
    """Return preset and number of seeds, with a note if the paper's sizes differ."""
    seeds = len(results["seeds"])
    text = f"{results['preset']} preset, {seeds} seed{'s' if seeds > 1 else ''}"
    beside = any(row["paper"] is not None for row in results["rows"])
    small = beside and results["preset"] != "full"
    return f"{text} (the paper's levels: its own sizes)" if small else text


def _on_average(settings: dict[str, Any]) -> str:
    return " on average" if settings.get("split") == "skewed" else ""


def choice(results: Results) -> str:
    """Describe how learning rates were chosen."""
    rates = ", ".join(f"{rate:g}" for rate in results["learning_rates"])
    if all("learning-rate" in row["settings"] for row in results["rows"]):
        return "The variants differ in the learning rate."
    if len(results["learning_rates"]) == 1:
        return f"Learning rate {rates} for all."
    chosen = (
        "on the first seed's validation data"
        if results["learning_rates_chosen"] == "once"
        else "for each seed on its own validation data"
    )
    return f"The learning rate of every method was chosen from {rates} {chosen}."


def settings_text(settings: dict[str, Any]) -> str:
    return ", ".join(f"`{key} = {value}`" for key, value in sorted(settings.items()))


def _shared(results: Results) -> dict[str, Any]:
    """Leave out settings that every variant has."""
    variants = results["variants"].values()
    return {
        key: value
        for key, value in results["settings"].items()
        if not all(key in variant for variant in variants)
    }


def _own_settings(results: Results) -> Iterator[str]:
    own = [
        f"in *{label}* {settings_text(settings)}"
        for label, settings in results["variants"].items()
        if settings
    ]
    if own:
        yield f"In addition, {'; '.join(own)}."


def test_sets(results: Results) -> Iterator[str]:
    """Describe the test sets, and why intervals are wider where seeds share examples."""
    rows, seeds = rows_of(results), len(results["seeds"])
    yield f"Tested on {_by_variant(rows, 'test_size', '{0.test_size:,}')} examples."
    if sampled(results):
        yield f"Hospitals' own models and the curves: on {results['test_sample']:,} of them."
    if any(row.overlap for row in rows):
        factor = _by_variant(rows, "overlap", f"1/{seeds} + {{0.test_size}}/{{0.pool_size}}")
        yield (
            "Seeds draw test and training data from the same examples and are not independent. "
            "Intervals therefore use the corrected resampled t-test (Nadeau and Bengio), with "
            f"{factor} instead of 1/{seeds} in the variance of the mean."
        )


def sampled(results: Results) -> bool:
    """Return whether frequent evaluations used only a part of the test set."""
    sample = results["test_sample"]
    return bool(sample) and any(row["test_size"] > sample for row in results["rows"])


def _by_variant(rows: list[Row], what: str, form: str) -> str:
    """Format a value once if it is the same for all variants, else for each variant."""
    first = {getattr(row, what): row for row in reversed(rows)}
    if len(first) == 1:
        return form.format(rows[0])
    found = {row.variant: form.format(row) for row in rows}
    return ", ".join(f"{text} ({variant})" for variant, text in found.items())
