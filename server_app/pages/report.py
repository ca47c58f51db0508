"""Reports: a run, or several, as one HTML file that opens offline and asks for nothing."""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operation import files

from .run_view import RunRecord, View, coordinator_view, public_view

PUBLIC, COORDINATOR = "report.html", "report-coordinator.html"
STATIC = Path(__file__).parent / "static"
STYLES = ("uplot/uPlot.min.css", "page.css")
SCRIPTS = ("uplot/uPlot.iife.min.js", "map.js", "page.js")


class NoPageFiles(Exception):
    """The scripts of pages are not here, as in an app bundle, which Flower limits to source."""


def write_reports(
    folder: Path, *, summary: dict[str, Any] | None = None, end: dict[str, str] | None = None
) -> tuple[Path, Path]:
    """Write a run's two reports into its folder: the one to hand out, and the coordinator's.

    `summary` and `end` are for a run that is about to end and has not recorded them yet.
    """
    run = RunRecord.read(folder)
    if end is not None:
        run.history.add({"event": "end", **end})
    run.summary = summary or run.summary
    title = f"FedDC: {run.name}"
    paths = folder / PUBLIC, folder / COORDINATOR
    files.replace(paths[0], report([public_view(run)], title).encode())
    private = report([coordinator_view(run)], f"{title} (coordinator)").encode()
    files.replace(paths[1], private, mode=0o600)
    return paths


def report(runs: Sequence[View], title: str) -> str:
    """Return a page that shows these runs."""
    data = json.dumps({"runs": list(runs), "title": title}, separators=(",", ":"))
    style = "\n".join(read_static(name) for name in STYLES)
    licence = "uPlot: " + read_static("uplot/LICENSE").replace("*/", "")
    script = f"/*!\n{licence}*/\n" + "\n".join(read_static(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        f"<style>{style}</style>"
    )
    # No end tag may occur in it, whatever a hospital calls itself.
    harmless = data.replace("<", "\\u003c")
    scripts = (
        f'<script id="data" type="application/json">{harmless}</script>\n<script>{script}</script>'
    )
    page = read_static("page.html").replace("<!--head-->", head)
    page = page.replace("<title>FedDC</title>", f"<title>{html.escape(title)}</title>")
    return page.replace("<!--scripts-->", scripts)


def read_static(name: str) -> str:
    """Return one of the files that pages are made of."""
    try:
        return (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NoPageFiles(
            "this copy of FedDC has no page files; `feddc lab page RUN` of an installed one "
            "writes the report"
        ) from error


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
