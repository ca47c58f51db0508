"""`feddc coordinator status`: services, hospitals and experiments of a study."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from operation import disk_space
from operation.runs.event_file import FILE_NAME
from operation.runs.history import HospitalHistory, RunHistory
from operation.terminal import byte_size
from server_app.experiment.live_view import ago
from server_app.services import background
from server_app.services.supervisor import PARTS
from server_app.study import certificates
from server_app.study.study_folder import Study
from server_app.study.study_members import enrolled, is_roster_current


def overview(study: Study) -> dict[str, Any]:
    """Return the state of a study, from its folder and, if it is running, the SuperLink."""
    from server_app.experiment.experiment_control import experiment_folders
    from server_app.experiment.experiment_status import experiment_status
    from server_app.study.registration import NotUp, control

    try:
        api = control(study)
        nodes = {node.name: node for node in api.nodes()}
    except NotUp:
        api, nodes = None, {}
    served = background.served_certificate(study)
    folders = experiment_folders(study)
    last = _last_answers(folders)
    hospitals = []
    for card in enrolled(study):
        node, row = nodes.get(card.name), last.get(card.name, HospitalHistory())
        hospitals.append(
            {
                "name": card.name,
                "connected": node is not None and node.is_online,
                "last_seen": node.last_seen if node else None,
                "last_leg": row.leg or None,
                "last_answer": row.last_seen,
                "problem": row.approval or row.problem,
            }
        )
    return {
        "study": study.name,
        "folder": str(study.folder),
        "address": str(study.address),
        "services": {part: background.answers(study, part) for part in PARTS},
        "disk_free_bytes": disk_space.free_bytes(study.folder),
        "certificate_days": certificates.days_left(study.tls, served),
        "certificate_warning": certificates.expiry_warning(study.tls, served),
        "generation": study.roster().generation if study.roster_file.exists() else None,
        "roster_is_current": is_roster_current(study),
        "hospitals": hospitals,
        "experiments": [
            {
                "id": status.experiment,
                "state": status.state,
                "reason": status.reason,
                "leg": status.leg,
                "legs": status.legs,
            }
            for status in (experiment_status(study, folder, api) for folder in folders)
        ],
    }


def _last_answers(folders: list[Path]) -> dict[str, HospitalHistory]:
    """Return how each hospital answered last in the experiment that was at work last."""
    files = [folder / FILE_NAME for folder in folders]
    files = sorted((file for file in files if file.exists()), key=lambda file: file.stat().st_mtime)
    return RunHistory.read(files[-1].parent).hospitals if files else {}


def show(seen: dict[str, Any], console: Console) -> None:
    """Print an overview as tables."""
    console.print(_facts(seen))
    console.print()
    console.print(_hospitals(seen["hospitals"]))
    if seen["experiments"]:
        console.print()
        console.print(_experiments(seen["experiments"]))


def _facts(seen: dict[str, Any]) -> Table:
    table = _table("", "")
    table.show_header = False
    up = [name for name, answers in seen["services"].items() if answers]
    down = [name for name, answers in seen["services"].items() if not answers]
    state = f"up ({', '.join(up)})" if not down else f"{', '.join(down)} not up"
    roster = "none yet" if seen["generation"] is None else f"generation {seen['generation']}"
    if seen["generation"] is not None and not seen["roster_is_current"]:
        roster += "; the members have changed: sign a new one with `feddc coordinator roster`"
    certificate = f"valid for {seen['certificate_days']} days"
    if seen["certificate_warning"]:
        certificate += f"; {seen['certificate_warning']}"
    elif seen["certificate_days"] < certificates.RENEW_DAYS:
        certificate += "; the next `up` renews it"
    disk = f"{byte_size(seen['disk_free_bytes'])} free"
    if disk_space.verdict(seen["disk_free_bytes"]) != "fine":
        disk += "; low: free some space, or a running experiment will fail"
    for name, value in {
        "study": seen["study"],
        "folder": seen["folder"],
        "address": seen["address"],
        "services": state,
        "disk": disk,
        "certificate": certificate,
        "roster": roster,
    }.items():
        table.add_row(name, Text(value))
    return table


def _hospitals(hospitals: list[dict[str, Any]]) -> Table:
    table = _table("hospital", "connected", "last seen", "last answer", "problem")
    for hospital in hospitals:
        connected = "yes" if hospital["connected"] else "no"
        seen = "now" if hospital["connected"] else ago(hospital["last_seen"], time.time())
        answer = "–"
        if hospital["last_leg"]:
            answer = f"leg {hospital['last_leg']}, {ago(hospital['last_answer'], time.time())}"
        table.add_row(Text(hospital["name"]), connected, seen, answer, Text(hospital["problem"]))
    if not hospitals:
        table.add_row("none yet: `feddc coordinator enrol HOSPITAL-FILE`")
    return table


def _experiments(experiments: list[dict[str, Any]]) -> Table:
    table = _table("experiment", "state", "leg", "")
    for experiment in experiments:
        legs = f"{experiment['leg']}/{experiment['legs']}" if experiment["legs"] else "–"
        table.add_row(experiment["id"], experiment["state"], legs, Text(experiment["reason"]))
    return table


def _table(*titles: str) -> Table:
    return Table(*titles, box=None, pad_edge=False, padding=(0, 2, 0, 0))
