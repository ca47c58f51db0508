"""The chain map: how each hospital took part in every leg, and the chains of the last legs.

Routes are in routes.jsonl, which only the coordinator may read; without it there are no chains.
"""

from collections import deque
from pathlib import Path
from typing import Any

from operation.runs.event_file import EventFile
from operation.runs.history import HospitalState, RunHistory

_COLUMNS = 400  # of cells; more legs share one
_WINDOW = 120  # legs with lines
# The worst state stands for all legs of a column.
_ORDER = (
    HospitalState.MISSING,
    HospitalState.PARKED,
    HospitalState.TRAINED,
    HospitalState.NOT_ASKED,
)


def chain_map(history: RunHistory, routes: Path | None) -> dict[str, Any] | None:
    """Return cells by state, aggregations, and the chains since the last two aggregations."""
    if not history.done:
        return None
    names = sorted(history.hospitals)
    per_column = -(-max(history.legs, history.done) // _COLUMNS)
    return {
        "legs": max(history.legs, history.done),
        "per_column": per_column,
        "names": names,
        "rows": [_runs(history.hospitals[name].states, per_column) for name in names],
        "aggregations": sorted({(leg - 1) // per_column for leg in history.aggregations}),
        "window": _window(history, routes, names),
    }


def _runs(states: bytearray, per_column: int) -> list[list[Any]]:
    """Return a hospital's cells, as [first column, number of columns, state]."""
    found: list[list[Any]] = []
    for column in range(-(-len(states) // per_column)):
        part = states[column * per_column : (column + 1) * per_column]
        state = next(state.value for state in _ORDER if state.value in part).decode()
        if found and found[-1][2] == state:
            found[-1][1] += 1
        else:
            found.append([column, 1, state])
    return [run for run in found if run[2] != HospitalState.NOT_ASKED.value.decode()]


def _window(history: RunHistory, routes: Path | None, names: list[str]) -> dict[str, Any] | None:
    """Return the chains of the last two aggregations and of those under way."""
    if routes is None or not routes.exists():
        return None
    ends = [0, *history.aggregations][-3:]
    first = max(ends[0] + 1, history.done - _WINDOW + 1)
    rows = {name: row for row, name in enumerate(names)}
    chains: dict[tuple[int, int], list[list[int]]] = {}
    for line in recent_routes(routes):
        if not first <= line["leg"] <= history.done:
            continue
        period = sum(end < line["leg"] for end in history.aggregations)
        for chain, hospital, _ in line["chains"]:
            if hospital in rows:
                chains.setdefault((period, chain), []).append([line["leg"], rows[hospital]])
    if not chains:
        return None
    return {
        "first": first,
        "last": history.done,
        "aggregations": [leg for leg in history.aggregations if leg >= first],
        "chains": [
            {
                "name": f"{period + 1}.{chain + 1}",
                "number": chain,
                "stops": stops,
                "seen": len({row for _, row in stops}),
            }
            for (period, chain), stops in sorted(chains.items())
        ],
    }


def recent_routes(path: Path) -> list[dict[str, Any]]:
    """Return the routes of the last legs; a leg that was written again counts once."""
    lines: deque[dict[str, Any]] = deque(maxlen=2 * _WINDOW)
    lines.extend(line for line in EventFile(path).new_events() if line.get("event") == "routes")
    return sorted({line["leg"]: line for line in lines}.values(), key=lambda line: line["leg"])
