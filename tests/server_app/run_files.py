"""The files of a run, and the events in them."""

import json
from pathlib import Path
from typing import Any

FILES = {
    "settings.json",
    "metrics.jsonl",
    "routes.jsonl",
    "model.safetensors",
    "accuracy.png",
    "summary.json",
    "report.html",
    "report-coordinator.html",
}


def events(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    parsed = [json.loads(line) for line in lines if line.endswith("}")]
    return [event for event in parsed if kind is None or event["event"] == kind]
