"""Where this hospital's experiments stand: legs, last contact, models sent and to whom."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from client_app.hospital_folder import HospitalFolder
from client_app.state.asked_experiments import AskedExperiment, asked_experiments
from client_app.state.audit_report import models_sent, read_audit


def status(folder: HospitalFolder) -> dict[str, Any]:
    """Return the last contact, ε so far and, of each experiment, its state, leg and models sent.

    Everything is from the audit log and the ledger, so it works while the agent runs.
    """
    lines, _ = read_audit(folder)
    contact = epsilon = None
    by_experiment: dict[str, list[bytes]] = {}
    for line in lines:
        entry = _entry(line)
        contact = entry.get("time", contact)
        epsilon = entry["reply"].get("epsilon", epsilon)
        name = entry.get("request", {}).get("experiment")
        if isinstance(name, str):
            by_experiment.setdefault(name, []).append(line)
    experiments = [
        _experiment(one, by_experiment.get(one.experiment, [])) for one in asked_experiments(folder)
    ]
    return {"last_contact": contact, "epsilon": epsilon, "experiments": experiments}


def status_text(found: dict[str, Any]) -> str:
    """Return the status in lines."""
    lines = [f"last contact  {_time(found['last_contact'])}"]
    if found["epsilon"] is not None:
        lines.append(
            f"privacy       ε = {found['epsilon']:.4g} for all releases with noise; see "
            "`feddc hospital ledger`"
        )
    for one in found["experiments"]:
        lines += [
            "",
            f"experiment    {one['experiment']}: {one['state']} since {_time(one['since'])}",
            f"leg           {one['leg'] or '-'} of {one['legs']}",
            f"last contact  {_time(one['last_contact'])}",
        ]
        sent = one["models_sent"]
        lines += [f"models sent   {count} to {to}" for to, count in sent.items()] or [
            "models sent   none"
        ]
        if one["refused"]:
            codes = ", ".join(f"{code} {count}" for code, count in one["refused"].items())
            lines.append(f"refused       {codes}")
    if not found["experiments"]:
        lines.append("No coordinator has asked for an experiment yet.")
    return "\n".join(lines)


def _experiment(asked: AskedExperiment, lines: Sequence[bytes]) -> dict[str, Any]:
    entries = [_entry(line) for line in lines]
    answered = [
        entry["request"].get("leg")
        for entry in entries
        if entry["request"].get("kind") == "train-leg" and entry["reply"].get("kind") != "refusal"
    ]
    refused = Counter(
        str(entry["reply"]["refusal"]) for entry in entries if entry["reply"].get("refusal")
    )
    return {
        "experiment": asked.experiment,
        "state": asked.state,
        "since": asked.since,
        "leg": max((leg for leg in answered if isinstance(leg, int)), default=None),
        "legs": asked.terms.legs,
        "last_contact": entries[-1].get("time") if entries else None,
        "models_sent": models_sent(lines),
        "refused": dict(refused),
    }


def _entry(line: bytes) -> dict[str, Any]:
    """Return an audit line's parts; empty ones for a line that can't be read."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {"request": {}, "reply": {}}
    empty: dict[str, Any] = {"request": {}, "reply": {}}
    return empty | entry if isinstance(entry, dict) else empty


def _time(text: str | None) -> str:
    return f"{text[:19].replace('T', ' ')} UTC" if text else "never"
