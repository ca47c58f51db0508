"""An experiment in plain words: what it asks of this hospital, and who could read what."""

from client_app.state.asked_experiments import AskedExperiment
from client_app.state.experiment_ledger import Terms
from operation.foreign_text import printable
from operation.terminal import counted, percent
from protocol.secure_sum.secure_leg import threshold

_STATES = {
    "waiting": "waits for your approval",
    "approved": "approved, and not begun",
    "running": "running",
    "rejected": "rejected",
    "closed": "closed",
}
_FIGURES = {
    "examples": "the number of your examples",
    "loss": "the training loss of every leg",
    "accuracy": "the training accuracy of every leg",
    "held-out": "loss and accuracy on your held-out examples",
}
_WIDTH = 13


def experiment_text(asked: AskedExperiment, metrics: list[str]) -> str:
    """Describe an experiment in a few lines; `metrics` are those that the policy discloses."""
    terms = asked.terms
    rows = {
        "fingerprint": asked.fingerprint,
        "study": f"{terms.study}, {terms.members} members",
        "coordinator": terms.coordinator,
        "model": f"{terms.model} {terms.model_options}: {terms.parameters:,} parameters",
        "first model": _first_model(terms),
        "training": ", ".join(f"{key} = {value}" for key, value in terms.training.items()),
        "rounds": f"{terms.rounds:,}, in {counted(terms.legs, 'leg')}{_fraction(terms)}",
        "hand-overs": _hand_overs(terms),
        "aggregations": _aggregations(terms),
        "privacy": _privacy(terms),
        "disclosed": _disclosed(terms, metrics),
    }
    head = f"{asked.experiment}: {_STATES[asked.state]} (since {asked.since})"
    lines = [head, *(f"  {name:{_WIDTH}} {text}" for name, text in rows.items())]
    # Line by line: options from outside must not be able to add a line of their own.
    return "\n".join(printable(line) for line in lines)


def _first_model(terms: Terms) -> str:
    if terms.init == "own":
        return "each hospital makes its own"
    if terms.first_model is not None:
        return f"given by the coordinator, SHA-256 {terms.first_model}"
    return "built here from the training seed, equal at all hospitals"


def _disclosed(terms: Terms, metrics: list[str]) -> str:
    if terms.privacy is not None:
        return "no figures"
    return "; ".join(_FIGURES[metric] for metric in metrics) or "no figures"


def _privacy(terms: Terms) -> str:
    privacy = terms.privacy
    if privacy is None or privacy.epsilon is None:
        return "no noise: records may be reconstructed from a model by anybody who can read it"
    whom = (
        f"the coordinator and {counted(privacy.colluding, 'member')} together"
        if privacy.cancelled
        else "everybody, the coordinator and all members together"
    )
    what = "each patient" if privacy.unit == "patient" else "all data of this hospital"
    return f"ε = {privacy.epsilon:.3g} for {what} (δ = {privacy.delta:g}), against {whom}"


def _fraction(terms: Terms) -> str:
    if terms.fraction == 1:
        return ""
    drawn = percent(terms.fraction, digits=0)
    return f"; each leg draws {drawn} of the hospitals, so this one takes part in fewer"


def _hand_overs(terms: Terms) -> str:
    most = "up to " if terms.is_random or terms.fraction < 1 else ""
    if not terms.hand_overs:
        return "none"
    if not terms.sealed:
        return f"{most}{terms.hand_overs:,}, not sealed: everybody on the way can read your model"
    return (
        f"{most}{terms.hand_overs:,}: your model leaves sealed for one other member, who can read "
        "it without being told whose it is"
    )


def _aggregations(terms: Terms) -> str:
    most = "up to " if terms.is_random or terms.fraction < 1 else ""
    count = f"{most}{terms.aggregations:,}"
    if terms.averaging == "plain":
        return f"{count}: the coordinator can read your model"
    least = threshold(terms.members, terms.minimum_cohort)
    text = f"{count}: the coordinator learns the sum of at least {least} members' models, not yours"
    if terms.aggregate == "same":
        text += "; what it makes of the sums can't be checked here"
    return text
