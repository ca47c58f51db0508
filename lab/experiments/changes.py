"""Check which settings `--set` may change in a comparison of methods."""

import difflib

from lab.experiments.definition import ExperimentError, Values
from operation.config import refuse_renamed
from server_app.config.run_config import RENAMED_SETTINGS, Settings

_OPTIONS = {
    "seed": "a comparison has several seeds: use --seeds",
    "hospitals": "use --hospitals",
    "examples": "use --examples",
    "dataset": "use --dataset NAME:PATH",
    "data-dir": "use --dataset NAME:PATH",
    "run-dir": "use --run-dir",
    "aggregator": "the methods differ in it: use --methods",
}
_WITHOUT_EFFECT = {
    "qfedavg-q": "it is qfedavg's, which is not compared",
    "krum-malicious": "it is krum's and bulyan's, which are not compared",
    "radon-iterations": "it is radon's, which is not compared",
    "server-momentum": "it is fedavgm's, which is not compared",
    "trim-fraction": "it is trimmed-mean's, which is not compared",
    "leg-timeout": "every hospital answers here",
    "quorum-wait": "every hospital answers here",
    "start-timeout": "every hospital answers here",
    "sealed": "nothing is sent here",
}
_NEVER = {
    "daisy-period": "without hand-overs FedDC is FedAvg(b), which is compared anyway",
    "aggregation-period": "without aggregations FedDC is daisy-chaining alone, "
    "which is compared anyway",
}


def checked(changes: Values) -> tuple[Values, tuple[float, ...]]:
    """Return the changed settings, and the learning rates to choose from if any are given."""
    known = Settings.defaults()
    refuse_renamed(changes, RENAMED_SETTINGS, source="command line")
    for key, value in changes.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ExperimentError(f"{key} is not a setting: {hint}docs/settings.md lists all")
        if key in _OPTIONS:
            raise ExperimentError(f"{key} can't be changed with --set: {_OPTIONS[key]}")
        if key in _WITHOUT_EFFECT:
            raise ExperimentError(f"{key} has no effect in a comparison: {_WITHOUT_EFFECT[key]}")
        if key in _NEVER and value == 0:
            raise ExperimentError(f"{key} must be at least 1 in a comparison, got 0: {_NEVER[key]}")
    rest = {key: value for key, value in changes.items() if key != "learning-rate"}
    if "learning-rate" not in changes:
        return rest, ()
    return rest, _rates(str(changes["learning-rate"]))


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError as error:
        raise ExperimentError(
            f"learning-rate must be one or more comma-separated numbers, got {text!r}"
        ) from error
    for rate in rates:
        Settings.from_run_config({"learning-rate": rate}, source="command line")
    return rates
